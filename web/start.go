package web

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// leastJobs is a suitable --jobs of Bazel for a farm of a few machines: jobs that wait cost nothing.
const leastJobs = 50

// Bazelrc returns the lines of .bazelrc that make Bazel use a farm. executor is the address of the
// scheduler, pages the URL of the pages (empty if unknown), slots those of the farm (0 if unknown).
// README.md and QUICKSTART.md have the lines of a farm on one machine with up to 12 slots.
func Bazelrc(executor, pages string, slots int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "build --remote_executor=%s\n", executor)
	b.WriteString("build --remote_timeout=3600\n" +
		"build --remote_retries=20\n" +
		"build --noremote_upload_local_results\n")
	fmt.Fprintf(&b, "build --jobs=%d\n", max(leastJobs, 4*slots))
	fmt.Fprintf(&b, "build --bes_backend=%s\n", executor)
	if pages != "" {
		fmt.Fprintf(&b, "build --bes_results_url=%sbuilds/\n", pages)
	}
	return b.String()
}

// start returns the lines of .bazelrc for a farm that has never been used; empty if the farm has
// been used.
func (p *queuePages) start(ctx context.Context, r *http.Request) string {
	if p.address == "" || p.used.Load() {
		return ""
	}
	for _, builds := range []bool{false, true} {
		list, err := p.Scheduler.ListRecords(ctx, &admin.ListRecordsRequest{PageSize: 1, Builds: builds})
		if err != nil {
			return ""
		}
		if len(list.GetRecords()) > 0 {
			p.used.Store(true)
			return ""
		}
	}
	pages := p.pages
	if pages == "" {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		pages = scheme + r.Host + "/"
	}
	return Bazelrc(reachable(p.address, r.Host), pages, p.slots)
}

// reachable returns the address as the viewers of the pages can reach it: if the port is open on
// all addresses, it replaces the host by the host of the pages.
func reachable(address, host string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsUnspecified() {
		return address
	}
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	u.Host = net.JoinHostPort(strings.Trim(name, "[]"), u.Port())
	return u.String()
}
