package web

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

const (
	// loadTimeout limits the wait of a page for its data.
	loadTimeout = 20 * time.Second
	// maxViewers limits the live pages. Others do not update.
	maxViewers = 200
	// livePeriod is how often a live page is checked for changes.
	livePeriod = 2 * time.Second
	// keepAlive is how often something is sent if nothing moves.
	keepAlive = 15 * time.Second
)

// A display shows pages to viewers: once, or again whenever they look different.
type display struct {
	*renderer
	viewers *intake.Places // of pages that move
}

// A loader gets the data of a page. Its errors are gRPC statuses.
type loader func(ctx context.Context, r *http.Request) (any, error)

// A templated is the data of a page that is another one than usual.
type templated interface{ template() string }

// A former is the data of a page whose static parts depend on its form.
type former interface{ form() string }

// A growing is the data of a page with a part that is too large to be sent at each change:
// additions to it are events of their own.
type growing interface {
	grown() (event string, data []byte)
}

// page answers with a page, or with the stream of its updates.
func (d *display) page(name string, load loader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == eventStream {
			d.follow(w, r, name, load)
			return
		}
		data, err := d.load(r, load)
		if err != nil {
			d.fail(w, r, name, err)
			return
		}
		shown := name
		if t, ok := data.(templated); ok {
			shown = t.template()
		}
		d.render(w, http.StatusOK, shown, d.view(r, shown, data))
	})
}

func (d *display) load(r *http.Request, load loader) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	return load(ctx, r)
}

// follow sends the live part of a page whenever it looks different, until the viewer leaves or the
// page ceases to exist.
func (d *display) follow(w http.ResponseWriter, r *http.Request, name string, load loader) {
	e, r, leave, ok := d.events(w, r)
	if !ok {
		return
	}
	defer leave()
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	var shown []byte
	var sent time.Time
	form := ""
	for {
		data, err := d.load(r, load)
		if e.crowded(r) || e.over(r) {
			return
		}
		if err != nil {
			_ = e.send("gone", []byte(status.Convert(err).Message()))
			return
		}
		if f, ok := data.(former); ok {
			if form != "" && form != f.form() {
				_ = e.send("reload", []byte(f.form()))
				return
			}
			form = f.form()
		}
		part, err := d.main(r, name, data)
		if err != nil {
			d.logger.Error("page cannot be rendered", zap.String("page", name), zap.Error(err))
			return
		}
		switch {
		case !bytes.Equal(part, shown):
			err = e.send("main", part)
			shown, sent = part, time.Now()
		case time.Since(sent) > keepAlive:
			err = e.send("alive", nil)
			sent = time.Now()
		}
		if g, ok := data.(growing); ok && err == nil {
			if event, news := g.grown(); len(news) > 0 {
				err = e.send(event, news)
			}
		}
		if err != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			_ = e.crowded(r) || e.over(r)
			return
		}
	}
}

// events begins a stream, if there is room for one more viewer; leave gives the room back. The context of the request
// that is returned ends with errCrowded when the room is given to another viewer, and with errLeft when he logs out.
func (d *display) events(w http.ResponseWriter, r *http.Request) (e events, _ *http.Request, leave func(), ok bool) {
	ctx, cancel := context.WithCancelCause(r.Context())
	leavePlace, ok := d.viewers.Take(auth.CallerOf(ctx), func() { cancel(errCrowded) })
	if !ok {
		cancel(nil)
		http.Error(w, errCrowded.Error(), http.StatusServiceUnavailable)
		return events{}, nil, nil, false
	}
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(ctx)
	watched := d.watch(r, cancel)
	return events{w, http.NewResponseController(w)}, r, func() { leavePlace(); cancel(nil); <-watched }, true
}

// watch ends a stream with errLeft if its session is ended early. The returned channel is closed
// when it has stopped, at the latest after the context of r.
func (d *display) watch(r *http.Request, end context.CancelCauseFunc) <-chan struct{} {
	stopped := make(chan struct{})
	var who *auth.Identity
	var until time.Time
	if d.login != nil {
		who, until = d.login.Of(r)
	}
	if who == nil {
		close(stopped)
		return stopped
	}
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(livePeriod)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-r.Context().Done():
				return
			}
			if who, _ := d.login.Of(r); who == nil && time.Now().Before(until) {
				end(errLeft)
				return
			}
		}
	}()
	return stopped
}
