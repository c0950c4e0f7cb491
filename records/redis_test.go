package records

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/records/redistest"
)

func openRedis(t *testing.T, address string, o RedisOptions) *Redis {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second // the machine may be busy
	}
	r, err := OpenRedis(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// clusterOf returns the URL of a Cluster, with the address of one node.
func clusterOf(nodes []*redistest.Server) string { return "redis+cluster://" + nodes[0].Addr }

func sentinelsOf(sentinels []*redistest.Server) string {
	address := fmt.Sprintf("redis+sentinel://%s/0?master_name=farm", sentinels[0].Addr)
	for _, s := range sentinels[1:] {
		address += "&addr=" + s.Addr
	}
	return address
}

func TestRedisURLs(t *testing.T) {
	for address, want := range map[string]string{
		"redis://127.0.0.1:1":                                         "",
		"rediss://user:secret@127.0.0.1:1/3":                          "",
		"redis+sentinel://127.0.0.1:1?master_name=m&addr=127.0.0.1:2": "",
		"rediss+cluster://:secret@127.0.0.1:1?addr=127.0.0.1:2":       "",
		"redis+ring://127.0.0.1:1":                                    "neither sentinel nor cluster",
		"redis+sentinel://127.0.0.1:1":                                "master_name",
		"redis://127.0.0.1:1?master_name=m":                           "master_name",
		"redis://127.0.0.1:1?addr=127.0.0.1:2":                        "several addresses",
		"redis://127.0.0.1:1?secret=1":                                `["secret"]`,
		"redis://user:secret@127.0.0.1":                               "HOST:PORT",
		"redis://user:secret@127.0.0.1:1/x":                           `database "x"`,
		"redis+cluster://127.0.0.1:1/2":                               "no databases",
		"redis://user:sec ret@127.0.0.1:1:2":                          "not a URL",
	} {
		r, err := OpenRedis(address, RedisOptions{})
		if err == nil {
			_ = r.Close()
		}
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "user")) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if !IsRedisURL(address) {
			t.Errorf("%s is a URL of Redis", address)
		}
	}
	for _, other := range []string{"bolt:redis://x", "grpc://redis:1", "redis", "redisx://h:1", ""} {
		if IsRedisURL(other) {
			t.Errorf("%q is no URL of Redis", other)
		}
	}
}

// TestRedisSharesRecords has two clients, like two schedulers.
func TestRedisSharesRecords(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret word")
	a := openRedis(t, "redis://:secret%20word@"+server.Addr, RedisOptions{})
	b := openRedis(t, "redis://default:secret%20word@"+server.Addr+"/0", RedisOptions{})
	put(t, a, testKey(1), testValue(1, 10))
	expect(t, b, testKey(1), testValue(1, 10))
	other := openRedis(t, "redis://:secret%20word@"+server.Addr+"/1", RedisOptions{})
	expect(t, other, testKey(1), nil)
	stranger := openRedis(t, "redis://:wrong@"+server.Addr, RedisOptions{})
	if _, err := stranger.Get(t.Context(), testKey(1)); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("get with a wrong password: %v", err)
	}
}

// TestRedisCountsWhatItHas changes records in all ways. The counted size of a bucket must match its
// content.
func TestRedisCountsWhatItHas(t *testing.T) {
	server := redistest.Start(t)
	s := openRedis(t, "redis://"+server.Addr, RedisOptions{MaxBytes: 1 << 20})
	var want int64
	for n := range 10 {
		for _, size := range []int{n, 500, 10 * n} {
			put(t, s, testKey(n), testValue(n, size))
		}
		want += recordBytes(testKey(n), len(testValue(n, 10*n)))
	}
	values := "forerunner:{profile}:values"
	if got := server.Do("HGET", values, "bytes"); !strings.Contains(got, fmt.Sprint("\n", want, "\r")) {
		t.Errorf("the bucket counts %q, want %d", got, want)
	}
	// The server has evicted the times of last use, and the bucket then exceeds its limit.
	server.Do("DEL", "forerunner:{profile}:uses")
	for n := range 200 {
		put(t, s, testKey(n), testValue(n, 10000))
	}
	expect(t, s, testKey(199), testValue(199, 10000))
	// The server has evicted the values.
	server.Do("DEL", values)
	for n := range 200 {
		expect(t, s, testKey(n), nil)
		put(t, s, testKey(n), testValue(n, 10000))
	}
	expect(t, s, testKey(199), testValue(199, 10000))
}

// TestRedisAway pauses the server and kills it. Calls must fail in time, and work when the server
// is back.
func TestRedisAway(t *testing.T) {
	server := redistest.Start(t)
	s := openRedis(t, "redis://"+server.Addr, RedisOptions{Timeout: 200 * time.Millisecond})
	patient := openRedis(t, "redis://"+server.Addr, RedisOptions{})
	put(t, patient, testKey(1), testValue(1, 10))
	away := func(why string) {
		t.Helper()
		_, err := s.Get(t.Context(), testKey(1))
		for name, err := range map[string]error{
			"get": err, "put": s.Put(t.Context(), testKey(1), nil),
			"swap": s.CompareAndSwap(t.Context(), testKey(1), nil, nil),
		} {
			if err == nil || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict) || errors.Is(err, ErrInvalid) {
				t.Errorf("%s from a server that is %s: %v", name, why, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := patient.Get(ctx, testKey(1)); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("get with a deadline from a server that is %s: %v", why, err)
		}
	}
	server.Pause()
	away("stopped")
	server.Resume()
	redistest.Eventually(t, "it answers again", func() bool {
		_, err := s.Get(t.Context(), testKey(1))
		return err == nil || errors.Is(err, ErrNotFound) // the delayed delete may have been executed
	})
	server.Kill()
	away("dead")
	server.Restart()
	redistest.Eventually(t, "it is back", func() bool { return s.Put(t.Context(), testKey(1), testValue(2, 20)) == nil })
	expect(t, patient, testKey(1), testValue(2, 20))

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), testKey(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
}

// TestRedisFailsOver kills the master of three servers with Sentinels.
func TestRedisFailsOver(t *testing.T) {
	master := redistest.Start(t)
	_, port, _ := strings.Cut(master.Addr, ":")
	const replicas = 2
	for range replicas {
		redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	}
	sentinels := redistest.StartSentinels(t, master, replicas)
	s := openRedis(t, sentinelsOf(sentinels), RedisOptions{Timeout: time.Second})
	put(t, s, testKey(1), testValue(1, 10))
	redistest.Eventually(t, "the replicas have it", func() bool {
		return strings.Contains(master.Do("WAIT", fmt.Sprint(replicas), "1000"), fmt.Sprint(":", replicas))
	})
	master.Kill()
	redistest.Eventually(t, "another one is master", func() bool {
		return s.Put(t.Context(), testKey(2), testValue(2, 10)) == nil
	})
	expect(t, s, testKey(1), testValue(1, 10))
	expect(t, s, testKey(2), testValue(2, 10))
	if err := s.CompareAndSwap(t.Context(), testKey(1), testValue(1, 10), testValue(3, 10)); err != nil {
		t.Errorf("swap on the new master: %v", err)
	}
}

// TestRedisOverTLS has a server that accepts only TLS, with a certificate of a private authority.
func TestRedisOverTLS(t *testing.T) {
	authority := certtest.New(t)
	certificate, key := authority.Server("redis")
	address := redistest.StartTLS(t, authority.File, certificate, key)
	text, err := os.ReadFile(authority.File)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(text)
	own, err := tls.LoadX509KeyPair(authority.Client("scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	s := openRedis(t, "rediss://"+address, RedisOptions{TLS: func() *tls.Config {
		return &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{own}}
	}})
	put(t, s, testKey(1), testValue(1, 10))
	expect(t, s, testKey(1), testValue(1, 10))
	stranger := openRedis(t, "rediss://"+address, RedisOptions{})
	var unknown x509.UnknownAuthorityError
	if _, err := stranger.Get(t.Context(), testKey(1)); !errors.As(err, &unknown) {
		t.Errorf("get from a server with an unknown authority: %v", err)
	}
}
