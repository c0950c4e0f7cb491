package learning

import (
	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// maxPrograms bounds the commands that are remembered, maxProgramBytes the program's name of
	// each.
	maxPrograms     = 20_000
	maxProgramBytes = 512
)

// programs remember which programs commands start, so that a command that comes again, with other
// inputs, need not be read again.
type programs struct {
	known *bounded.Shared[digest.Digest, string]
}

func newPrograms() *programs {
	return &programs{bounded.NewShared[digest.Digest, string](maxPrograms)}
}

// get returns the program that the command d starts; "" if that is not known.
func (p *programs) get(d digest.Digest) string {
	program, _ := p.known.Get(d)
	return program
}

// put remembers the program that the command d starts.
func (p *programs) put(d digest.Digest, program string) {
	if len(program) <= maxProgramBytes {
		p.known.Put(d, program)
	}
}
