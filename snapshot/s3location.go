package snapshot

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// s3Location is what an s3 URL and the environment say of a store.
type s3Location struct {
	bucket string
	prefix string // of all names in the bucket; empty, or with a slash at its end
	host   string // of the endpoint, with its port
	secure bool   // whether the endpoint speaks TLS
	region string
	lookup minio.BucketLookupType
	keys   *credentials.Credentials
}

const (
	defaultS3Endpoint = "https://s3.amazonaws.com"
	defaultS3Region   = "us-east-1"
)

// parseS3Location reads s3://bucket/prefix?endpoint=URL&region=NAME&pathStyle=BOOL. Its errors repeat nothing of the URL:
// somebody may have put a secret there.
func parseS3Location(location *url.URL, getenv func(string) string) (s3Location, error) {
	l := s3Location{bucket: location.Host, prefix: strings.Trim(location.Path, "/")}
	if location.User != nil || location.Fragment != "" {
		return l, errors.New("an s3 URL is a bucket, a prefix and parameters; keys are read from " + s3KeyVariables)
	}
	if s3utils.CheckValidBucketNameStrict(l.bucket) != nil {
		return l, errors.New("an s3 URL has the name of a bucket after its two slashes")
	}
	if l.prefix != "" {
		if checkKey(l.prefix) != nil {
			return l, errors.New("the prefix of an s3 URL is made of letters, digits and -_. between slashes, and no part of it begins with a dot")
		}
		l.prefix += "/"
	}
	parameters, err := url.ParseQuery(location.RawQuery)
	if err != nil {
		return l, errors.New("its parameters cannot be read")
	}
	for name, values := range parameters {
		if name != "endpoint" && name != "region" && name != "pathStyle" || len(values) != 1 || values[0] == "" {
			return l, errors.New("an s3 URL has the parameters endpoint, region and pathStyle, each at most once; keys are read from " + s3KeyVariables)
		}
	}
	if err := l.readEndpoint(parameters.Get("endpoint")); err != nil {
		return l, err
	}
	if l.lookup, err = readPathStyle(parameters.Get("pathStyle")); err != nil {
		return l, err
	}
	l.region = firstSet(parameters.Get("region"), getenv("AWS_REGION"), getenv("AWS_DEFAULT_REGION"), defaultS3Region)
	l.keys, err = s3Keys(getenv)
	return l, err
}

func (l *s3Location) readEndpoint(text string) error {
	endpoint, err := url.Parse(firstSet(text, defaultS3Endpoint))
	if err != nil || endpoint.Scheme != "https" && endpoint.Scheme != "http" || endpoint.Host == "" ||
		endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		return errors.New("the endpoint of an s3 URL is https://host or https://host:port (or http) and nothing else")
	}
	l.host, l.secure = endpoint.Host, endpoint.Scheme == "https"
	return nil
}

// readPathStyle decides where the bucket's name goes. Unless told otherwise, that depends on the endpoint: into the host
// name where the large providers are known to want it, into the path everywhere else.
func readPathStyle(text string) (minio.BucketLookupType, error) {
	if text == "" {
		return minio.BucketLookupAuto, nil
	}
	inPath, err := strconv.ParseBool(text)
	switch {
	case err != nil:
		return 0, errors.New("pathStyle of an s3 URL is true or false")
	case inPath:
		return minio.BucketLookupPath, nil
	default:
		return minio.BucketLookupDNS, nil
	}
}

// s3KeyVariables names the variables that hold the keys, for messages.
const s3KeyVariables = "BERTH_S3_ACCESS_KEY_ID and BERTH_S3_SECRET_ACCESS_KEY, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

// s3Keys takes Berth's own variables before the usual ones: `berth run` hands no variable of Berth's to its command, while
// the usual ones may be there for that command.
func s3Keys(getenv func(string) string) (*credentials.Credentials, error) {
	for _, prefix := range []string{"BERTH_S3_", "AWS_"} {
		id, secret := getenv(prefix+"ACCESS_KEY_ID"), getenv(prefix+"SECRET_ACCESS_KEY")
		switch {
		case id == "" && secret == "":
			continue
		case id == "" || secret == "":
			return nil, fmt.Errorf("%[1]sACCESS_KEY_ID and %[1]sSECRET_ACCESS_KEY go together, and one of them is not set", prefix)
		}
		return credentials.NewStaticV4(id, secret, getenv(prefix+"SESSION_TOKEN")), nil
	}
	return nil, errors.New("an s3 store needs its keys in " + s3KeyVariables)
}

func firstSet(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
