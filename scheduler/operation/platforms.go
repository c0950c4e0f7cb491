package operation

import (
	"fmt"
	"slices"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// maxPlatforms bounds the platforms that are shared; farms have a few.
const maxPlatforms = 1000

// Platforms deduplicate equal platforms, because most operations and workers have one of a few. The
// zero value is ready for use.
type Platforms struct {
	// ignored is Config.ActionProperties.
	ignored []string

	mu    sync.Mutex
	known map[string]sharedPlatform // guarded by mu; by Key
	// offers are those of workers, by their Offer and the Key of their platform.
	offers map[Offer]map[string]request.Platform // guarded by mu
}

// An Offer is the part of a worker's offer besides its platform, as encoded Platforms of REv2; see
// request.NewOffer.
type Offer struct{ Required, Implied string }

// Offer returns the Offer of a worker with platform m.
func (p *Platforms) Offer(m *repb.Platform, o Offer) (request.Platform, error) {
	plain, _ := p.Of(p.Matched(m))
	if o == (Offer{}) {
		return plain, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if offer, ok := p.offers[o][plain.Key()]; ok {
		return offer, nil
	}
	required, implied := &repb.Platform{}, &repb.Platform{}
	if err := proto.Unmarshal([]byte(o.Required), required); err != nil {
		return request.Platform{}, fmt.Errorf("header %s: %w", names.RequiredHeader, err)
	}
	if err := proto.Unmarshal([]byte(o.Implied), implied); err != nil {
		return request.Platform{}, fmt.Errorf("header %s: %w", names.ImpliedHeader, err)
	}
	if n := len(required.GetProperties()) + len(implied.GetProperties()); n > maxProperties {
		return request.Platform{}, fmt.Errorf("headers %s and %s have %d properties; the maximum is %d",
			names.RequiredHeader, names.ImpliedHeader, n, maxProperties)
	}
	offer := request.NewOffer(plain.Proto(), required, implied)
	if p.offers == nil || len(p.offers) >= maxPlatforms {
		p.offers = map[Offer]map[string]request.Platform{}
	}
	if p.offers[o] == nil || len(p.offers[o]) >= maxPlatforms {
		p.offers[o] = map[string]request.Platform{}
	}
	p.offers[o][plain.Key()] = offer
	return offer, nil
}

type sharedPlatform struct {
	platform request.Platform
	message  *repb.Platform
}

// Of returns NewPlatform(m), and a message equal to m. Both are read-only.
func (p *Platforms) Of(m *repb.Platform) (request.Platform, *repb.Platform) {
	var buffer [256]byte
	key := buffer[:0]
	for _, x := range m.GetProperties() {
		key = request.AppendKey(key, x.GetName(), x.GetValue())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Only platforms in canonical order, as REv2 requires, are found: the same key, the same
	// message.
	if s, ok := p.known[string(key)]; ok && m != nil {
		return s.platform, s.message
	}
	made := request.NewPlatform(m)
	if made.Key() == string(key) && m != nil {
		if p.known == nil || len(p.known) >= maxPlatforms {
			p.known = map[string]sharedPlatform{}
		}
		p.known[made.Key()] = sharedPlatform{made, m}
	}
	return made, m
}

// Matched returns the part of m that decides where an action runs; m itself if that is all.
func (p *Platforms) Matched(m *repb.Platform) *repb.Platform {
	ignored := func(x *repb.Platform_Property) bool { return slices.Contains(p.ignored, x.GetName()) }
	if !slices.ContainsFunc(m.GetProperties(), ignored) {
		return m
	}
	return &repb.Platform{Properties: slices.DeleteFunc(slices.Clone(m.GetProperties()), ignored)}
}
