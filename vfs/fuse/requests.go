package fuse

import (
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/prometheus/client_golang/prometheus"
)

// timedEvery is how many requests of a kind share one measurement: two readings of the clock and
// the search for the bucket take as long as answering a lookup from memory.
const timedEvery = 16

// requests counts the kernel's requests to all layers of a Driver, by kind.
type requests struct {
	total   *prometheus.CounterVec
	seconds *prometheus.HistogramVec

	lookup, getattr, readlink, open, read, readdir requestsOf
}

type requestsOf struct {
	count   atomic.Uint64 // selects the requests to measure
	total   prometheus.Counter
	seconds prometheus.Observer
}

func newRequests(r prometheus.Registerer) (*requests, error) {
	q := &requests{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "forerunner_fuse_requests_total",
			Help: "Requests of the kernel to input roots by operation.",
		}, []string{"operation"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "forerunner_fuse_request_seconds",
			Help:    "Time to answer a request, including waits for storage; one request in 16 is timed.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 8, 9), // to 16 s
		}, []string{"operation"}),
	}
	for name, of := range map[string]*requestsOf{
		"lookup": &q.lookup, "getattr": &q.getattr, "readlink": &q.readlink,
		"open": &q.open, "read": &q.read, "readdir": &q.readdir,
	} {
		of.total, of.seconds = q.total.WithLabelValues(name), q.seconds.WithLabelValues(name)
	}
	for _, c := range []prometheus.Collector{q.total, q.seconds} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// answer counts a request, which serve answers.
func (r *requestsOf) answer(serve func() fuse.Status) fuse.Status {
	r.total.Inc()
	if r.count.Add(1)%timedEvery != 0 {
		return serve()
	}
	start := time.Now()
	status := serve()
	r.seconds.Observe(time.Since(start).Seconds())
	return status
}

// countedFS is a handler whose requests are counted.
type countedFS struct {
	*handler
	requests *requests
}

var _ fuse.RawFileSystem = (*countedFS)(nil)

func (c *countedFS) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	return c.requests.lookup.answer(func() fuse.Status { return c.handler.Lookup(cancel, h, name, out) })
}

func (c *countedFS) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return c.requests.getattr.answer(func() fuse.Status { return c.handler.GetAttr(cancel, in, out) })
}

func (c *countedFS) Readlink(cancel <-chan struct{}, h *fuse.InHeader) (target []byte, status fuse.Status) {
	status = c.requests.readlink.answer(func() (s fuse.Status) {
		target, s = c.handler.Readlink(cancel, h)
		return s
	})
	return target, status
}

func (c *countedFS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	return c.requests.open.answer(func() fuse.Status { return c.handler.Open(cancel, in, out) })
}

func (c *countedFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (result fuse.ReadResult, status fuse.Status) {
	status = c.requests.read.answer(func() (s fuse.Status) {
		result, s = c.handler.Read(cancel, in, buf)
		return s
	})
	return result, status
}

func (c *countedFS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.requests.readdir.answer(func() fuse.Status { return c.handler.ReadDir(cancel, in, out) })
}

func (c *countedFS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return c.requests.readdir.answer(func() fuse.Status { return c.handler.ReadDirPlus(cancel, in, out) })
}
