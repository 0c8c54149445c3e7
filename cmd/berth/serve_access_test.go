package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServeRefusesAPublicAddressWithoutTLS(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:8080"} {
		r := invoke(t, dir, nil, "serve", "--addr", address)
		refused(t, r, exitUsage, "--addr "+address, "--tls-cert", "--insecure")
	}
	refused(t, invoke(t, dir, nil, "serve", "--addr", "nonsense"), exitUsage, "--addr")
	refused(t, invoke(t, dir, nil, "serve", "--tls-cert", "x"), exitUsage, "--tls-key")
	refused(t, invoke(t, dir, nil, "serve", "--tls-cert", "x", "--tls-key", "y"), exitFailed, "--tls-cert")
	s := start(t, dir, nil, "--addr", "0.0.0.0:0", "--insecure")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := get(t, http.DefaultClient, "http://127.0.0.1:"+port+"/api/health"); status != http.StatusOK {
		t.Errorf("health answers %d", status)
	}
}

func TestServeSpeaksTLS(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	certificate, key := certify(t, dir)
	s := start(t, dir, nil, "--tls-cert", certificate, "--tls-key", key)
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("it serves %s", s.url)
	}
	pool := x509.NewCertPool()
	raw, err := os.ReadFile(certificate)
	if err != nil || !pool.AppendCertsFromPEM(raw) {
		t.Fatalf("the certificate cannot be read: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	if status, _ := get(t, client, s.url+"/api/health"); status != http.StatusOK {
		t.Errorf("health answers %d", status)
	}
	refused(t, s.berth(t, "list", "companies"), exitFailed, "certificate")
	if r := s.berthAs(t, []string{"SSL_CERT_FILE=" + certificate}, "create", "company", "Acme"); r.code != 0 {
		t.Errorf("with the certificate trusted: %s", r.stderr)
	}
}

// certify makes a certificate for this machine that vouches for itself.
func certify(t *testing.T, dir string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "berth"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der},
		key:         {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate, key
}

func TestOperatorTokenOfTheEnvironmentIsNotWrittenDown(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	refused(t, invoke(t, dir, []string{"BERTH_OPERATOR_TOKEN=short"}, "serve", "--addr", "127.0.0.1:0"), exitFailed, "operator token", "characters")
	const secret = "a-secret-that-somebody-chose"
	s := start(t, dir, []string{"BERTH_OPERATOR_TOKEN=" + secret})
	refused(t, s.berth(t, "list", "companies"), exitFailed, "no token")
	if r := s.berthAs(t, []string{"BERTH_TOKEN=" + secret}, "create", "company", "Acme"); r.code != 0 {
		t.Errorf("the token that was given does not work: %s", r.stderr)
	}
	if strings.Contains(s.log.String()+strings.Join(s.banner, ""), secret) {
		t.Error("the secret is in the log")
	}
}

func TestRevokedOperatorTokenStaysRevokedAfterARestart(t *testing.T) {
	t.Parallel()
	dir := openTempDir(t)
	first := start(t, dir, nil)
	other := first.must(t, "token", "create", "second", "--role", "operator")
	first.must(t, "token", "revoke", "operator")
	first.end(syscall.SIGINT)

	second := start(t, dir, nil)
	wants(t, second.banner[1], "not valid any more")
	refused(t, second.berth(t, "list", "companies"), exitFailed, "unauthenticated")
	if r := second.berthAs(t, []string{"BERTH_TOKEN=" + other}, "list", "companies"); r.code != 0 {
		t.Errorf("the other operator's token: %s", r.stderr)
	}
	second.end(syscall.SIGINT)

	if err := os.Remove(filepath.Join(dir, ".berth/operator-token")); err != nil {
		t.Fatal(err)
	}
	third := start(t, dir, nil)
	third.must(t, "create", "company", "Acme")
}
