package snapshot

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// s3Patience is how long a connection to the store may stand still before it is given up. A transfer may
	// take as long as it likes while something moves.
	s3Patience = time.Minute
	// s3Tries is how often a request is sent before its failure counts; there is about a second between two.
	s3Tries = 4
)

func connectS3(l s3Location, patience time.Duration) (*minio.Core, error) {
	transport, err := minio.DefaultTransport(l.secure)
	if err != nil {
		return nil, fmt.Errorf("prepare connections to the snapshot store: %w", err)
	}
	transport.ResponseHeaderTimeout = patience
	dialer := &net.Dialer{Timeout: min(patience, 30*time.Second), KeepAlive: 30 * time.Second}
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &impatientConn{Conn: conn, patience: patience}, nil
	}
	return minio.NewCore(l.host, &minio.Options{
		Creds: l.keys, Secure: l.secure, Transport: transport, Region: l.region, BucketLookup: l.lookup, MaxRetries: s3Tries,
	})
}

// impatientConn fails when nothing has moved on it for its patience.
type impatientConn struct {
	net.Conn
	patience time.Duration
}

func (c *impatientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write also moves the deadline of the read that waits for the answer meanwhile.
func (c *impatientConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.patience)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
