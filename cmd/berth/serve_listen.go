package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// drainTime is what requests at work get to finish when the service ends.
	drainTime = 15 * time.Second

	// cancelTime is what they get after that to notice that they were cancelled.
	cancelTime = 3 * time.Second
)

// listen takes the address, before anything slow is started. Who can read the
// network reads tokens, so beyond this machine it wants TLS.
func (c serveCommand) listen(ctx context.Context) (net.Listener, error) {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return nil, usageError{errors.New("--tls-cert and --tls-key belong together: give both")}
	}
	var config *tls.Config
	if c.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	} else if !c.Insecure {
		if err := requireLoopback(ctx, c.Addr); err != nil {
			return nil, err
		}
	}
	door, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Addr)
	if err != nil {
		return nil, fmt.Errorf("--addr: %w", err)
	}
	if config != nil {
		door = tls.NewListener(door, config)
	}
	return door, nil
}

// requireLoopback refuses an address that others than this machine can reach.
func requireLoopback(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("--addr: %w", err)}
	}
	addresses := []net.IPAddr{{IP: net.IPv4zero}} // no host means every address
	if host != "" {
		if addresses, err = net.DefaultResolver.LookupIPAddr(ctx, host); err != nil {
			return fmt.Errorf("--addr: %w", err)
		}
	}
	for _, address := range addresses {
		if !address.IP.IsLoopback() {
			return usageError{fmt.Errorf("--addr %s can be reached from other machines, which could read the tokens that cross the network: "+
				"give --tls-cert and --tls-key, or --insecure if something in front of it does TLS", addr)}
		}
	}
	return nil
}

// serve answers requests until ctx ends, or the listener or the database fails.
func (c serveCommand) serve(ctx context.Context, door net.Listener, handler http.Handler, lost <-chan error, log *slog.Logger) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler:     handler,
		BaseContext: func(net.Listener) context.Context { return requests },
		// Bodies have deadlines of their own: a snapshot takes as long as it flows.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(func() { time.AfterFunc(drainTime, cancelRequests) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(door) }()

	var cause error
	select {
	case <-ctx.Done():
		log.Info("ending: no new requests, and those at work may finish")
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case cause = <-lost:
		log.Error("ending: the database is gone", "error", cause)
		cancelRequests() // none of them can succeed
	}
	deadline, release := context.WithTimeout(context.Background(), drainTime+cancelTime)
	defer release()
	if err := server.Shutdown(deadline); err != nil {
		log.Warn("requests were cut off", "error", err)
		_ = server.Close()
	}
	return cause
}
