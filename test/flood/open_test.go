package flood

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// openFloods are the floods of a farm without authentication. The first two are part of each test.
func openFloods() []flood {
	const request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
	empty := message(0)
	return []flood{
		// 2,000 uploads, from where honest ones come, too, that bring a byte a second.
		{name: "slow uploads", from: "127.0.0.1", clients: 20, press: func(c *rudeClient) {
			inParallel(100, c.trickle)
		}},
		{name: "metrics without end", pages: true, clients: 100, press: func(c *rudeClient) {
			in := bufio.NewReader(c.conn)
			for {
				if _, err := io.WriteString(c.conn, request); err != nil {
					return
				}
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					return
				}
			}
		}},
		{name: "one byte short", from: "127.0.0.1", clients: 2, press: func(c *rudeClient) {
			inParallel(60, func() { c.pressCall(methodBatch, append(message(4<<20), make([]byte, 4<<20-1)...)) })
		}},
		{name: "half-open TLS", raw: true, clients: 2000, press: func(c *rudeClient) { c.say("\x16") }},
		{name: "idle after one call", clients: 2000, press: func(c *rudeClient) {
			stream, err := c.call(methodHealth)
			if err == nil && c.send(stream, empty) == nil && c.frame(frameData, flagEndStream, stream, nil) == nil {
				c.wait()
			}
		}},
		{name: "streams", clients: 30, press: func(c *rudeClient) {
			inParallel(1000, func() { c.pressCall(methodExecute, message(100)) })
		}},
		{name: "endless headers", clients: 400, press: func(c *rudeClient) {
			if c.endlessHeaders(methodHealth, 2<<20-64<<10) == nil {
				c.wait()
			}
		}},
		{name: "half requests for pages", pages: true, clients: 1000, press: func(c *rudeClient) {
			c.say("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
		}},
		{name: "pages that nobody reads", pages: true, clients: 300, press: func(c *rudeClient) {
			for {
				if _, err := io.WriteString(c.conn, request); err != nil {
					return
				}
			}
		}},
	}
}

// trickle makes uploads of 1 MB, one after the other, that bring a byte a second.
func (c *rudeClient) trickle() {
	for {
		stream, err := c.call(methodWrite)
		if err == nil {
			err = c.send(stream, firstOfWrite(1_000_000, 1))
		}
		if err == nil {
			err = c.send(stream, message(1000))
		}
		for err == nil {
			time.Sleep(time.Second)
			err = c.send(stream, []byte{0})
		}
		if !errors.Is(err, errStreamEnded) {
			return
		}
		time.Sleep(time.Second) // as clients do before they try again
	}
}

// TestOpenFlood floods a scheduler that has 200 MB and no authentication, at the gRPC port and at
// the port of pages. Actions, an upload of 100 MB and pages must continue to work.
func TestOpenFlood(t *testing.T) {
	group := memoryGroup(t, floodedMemory)
	lasts, list := chosen(openFloods(), 2)
	f := programs.New(t, programs.OwnSandbox)
	a := certtest.New(t)
	cert, key := a.Server("scheduler")
	pages := freeport.Address(t)
	scheduler := inGroup(f, group, "forerunner-scheduler", "--listen", "127.0.0.1:0", "--http", pages,
		"--data", filepath.Join(f.Dir, "scheduler"), "--tls-cert", cert, "--tls-key", key)
	address := scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)[1]
	remote, trust := "grpcs://"+address, []string{"--tls-ca", a.File}
	data := filepath.Join(f.Dir, "worker")
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	worker := f.Start(append([]string{
		"forerunner-worker", "--data", data, "--scheduler", remote, "--storage", remote, "--state", remote,
	}, trust...)...)
	worker.WaitFor(&worker.Stderr, programs.ReadyLine)
	authority, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: pool, ServerName: "localhost", NextProtos: []string{"h2"}}
	reader := &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "localhost"}},
	}
	pressed(f, "no flood", scheduler, func() { used(f, "quiet", remote, trust, lasts) })
	for _, flood := range list {
		pressed(f, flood.name, scheduler, func() {
			target := address
			if flood.pages {
				target = pages
			}
			stop := flood.start(target, config)
			used(f, flood.name, remote, trust, lasts)
			read(f, reader, "https://"+pages+"/")
			t.Logf("%d connections were made for it", stop())
		})
	}
	worker.Drain()
	scheduler.Drain()
}

// used runs actions for a while, and then one that brings 100 MB.
func used(f *programs.Test, name, remote string, who []string, lasts time.Duration) {
	f.Helper()
	name = strings.ReplaceAll(name, " ", "-")
	actions(f, name, remote, who, lasts)
	const size = 100_000_000
	in := filepath.Join(f.Dir, name+"-large")
	text := make([]byte, size)
	_, _ = rand.Read(text)
	if err := errors.Join(os.Mkdir(in, 0o755), os.WriteFile(filepath.Join(in, "data"), text, 0o644)); err != nil {
		f.Fatal(err)
	}
	begin := time.Now()
	f.Start(append(append([]string{"forerunner", "exec", "--quiet", "--remote", remote, "--input", in}, who...),
		"--", "/usr/bin/wc", "-c", "data")...).Expect(0, "100000000 data\n")
	f.Logf("100 MB were uploaded and used in %v", time.Since(begin).Round(time.Millisecond))
	if err := os.RemoveAll(in); err != nil {
		f.Error(err)
	}
}

// read reads a page, and prints how long that took.
func read(f *programs.Test, client *http.Client, url string) {
	f.Helper()
	begin := time.Now()
	resp, err := client.Get(url)
	if err != nil {
		f.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		f.Errorf("%s: %s, %v", url, resp.Status, err)
	}
	f.Logf("a page took %v", time.Since(begin).Round(time.Millisecond))
}
