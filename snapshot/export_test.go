package snapshot

import (
	"net"
	"net/url"
	"time"
)

// OpenTunedS3Store opens a store that cuts objects into smaller parts and gives connections up sooner.
func OpenTunedS3Store(location string, getenv func(string) string, partSize int64, patience time.Duration) (Store, error) {
	parsed, err := url.Parse(location)
	if err != nil {
		return nil, err
	}
	return openS3Store(parsed, getenv, s3Tuning{partSize: partSize, patience: patience})
}

// NewImpatientConn is how connections to an S3 server are wrapped.
func NewImpatientConn(conn net.Conn, patience time.Duration) net.Conn {
	return &impatientConn{Conn: conn, patience: patience}
}
