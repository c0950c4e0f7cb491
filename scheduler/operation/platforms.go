package operation

import (
	"slices"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// maxPlatforms bounds the platforms that are shared; farms have a few.
const maxPlatforms = 1000

// Platforms share what is equal, as most operations and workers have one of a few
// platforms. Zero is ready for use.
type Platforms struct {
	// ignored is Config.ActionProperties.
	ignored []string

	mu    sync.Mutex
	known map[string]sharedPlatform // guarded by mu; by Key
}

type sharedPlatform struct {
	platform request.Platform
	message  *repb.Platform
}

// Of returns NewPlatform(m), and a message equal to m. Neither must be changed.
func (p *Platforms) Of(m *repb.Platform) (request.Platform, *repb.Platform) {
	var buffer [256]byte
	key := buffer[:0]
	for _, x := range m.GetProperties() {
		key = request.AppendKey(key, x.GetName(), x.GetValue())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Only platforms in canonical order, as REv2 wants them, are found: the same key, the same message.
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

// Matched is the part of m that decides where an action runs; m itself if that is all.
func (p *Platforms) Matched(m *repb.Platform) *repb.Platform {
	ignored := func(x *repb.Platform_Property) bool { return slices.Contains(p.ignored, x.GetName()) }
	if !slices.ContainsFunc(m.GetProperties(), ignored) {
		return m
	}
	return &repb.Platform{Properties: slices.DeleteFunc(slices.Clone(m.GetProperties()), ignored)}
}
