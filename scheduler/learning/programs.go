package learning

import (
	lru "github.com/hashicorp/golang-lru/v2"

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
	known *lru.Cache[digest.Digest, string]
}

func newPrograms() *programs {
	known, err := lru.New[digest.Digest, string](maxPrograms)
	if err != nil {
		panic(err) // maxPrograms is positive
	}
	return &programs{known}
}

// get returns the program that the command d starts; "" if that is not known.
func (p *programs) get(d digest.Digest) string {
	program, _ := p.known.Get(d)
	return program
}

// put remembers the program that the command d starts.
func (p *programs) put(d digest.Digest, program string) {
	if len(program) <= maxProgramBytes {
		p.known.Add(d, program)
	}
}
