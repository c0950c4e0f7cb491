package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates. File is its own certificate, in PEM form.
type Authority struct {
	File string
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// New makes an authority whose files end with the test. All have the same name: clients present their
// certificates to servers that trust another one.
func New(t *testing.T) *Authority {
	t.Helper()
	return Named(t, "authority")
}

// Named makes an authority with a name.
func Named(t *testing.T, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), cert: &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key = newKey(t)
	der := a.sign(a.cert, a.key)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.File = a.write("authority.pem", "CERTIFICATE", der)
	return a
}

// Server makes a certificate for localhost and 127.0.0.1 in two files, and replaces those of the
// same name. A client can use it, too, with that common name and these units.
func (a *Authority) Server(name string, units ...string) (cert, key string) {
	return a.Issue(name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name, OrganizationalUnit: units}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

// Client makes a client's certificate of that common name and these units.
func (a *Authority) Client(name string, units ...string) (cert, key string) {
	return a.Issue(name, &x509.Certificate{Subject: pkix.Name{CommonName: name, OrganizationalUnit: units}})
}

// Issue signs a certificate into NAME.pem and NAME.key. Unless c says otherwise it is valid for an
// hour, for servers and clients.
func (a *Authority) Issue(name string, c *x509.Certificate) (cert, key string) {
	a.t.Helper()
	c.SerialNumber, c.KeyUsage = serial(a.t), x509.KeyUsageDigitalSignature
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if c.ExtKeyUsage == nil {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	own := newKey(a.t)
	cert = a.write(name+".pem", "CERTIFICATE", a.sign(c, own))
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, a.write(name+".key", "PRIVATE KEY", der)
}

func (a *Authority) sign(c *x509.Certificate, of crypto.Signer) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, of.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
