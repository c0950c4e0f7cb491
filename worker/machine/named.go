package machine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"time"
)

// A Named is a machine whose operator declares that it has the same files for commands as all
// others of that name.
type Named struct{ name string }

// NewNamed returns the machine with that name and those facts.
func NewNamed(name string, facts []string) *Named {
	return &Named{digestOf("named", append([]string{name}, facts...))}
}

// As returns the name that the machine shares with machines that are alike. It is always valid.
func (n *Named) As(context.Context, time.Time) (string, bool) { return n.name, true }

// Known is As.
func (n *Named) Known(time.Time) (string, bool) { return n.name, true }

// idFile has what tells an installed system from all others (machine-id(5)). Images of containers
// often have none.
const idFile = "/etc/machine-id"

// Own returns a name that the machine keeps over restarts and that other machines do not have, as
// far as they can be distinguished. If it is named, it shares the name with machines of the same
// name and facts.
func Own(named string, facts []string) string {
	id, _ := os.ReadFile(idFile)
	return own(strings.TrimSpace(string(id)), named, facts)
}

func own(id, named string, facts []string) string {
	if named != "" {
		return NewNamed(named, facts).name
	}
	return digestOf("own", append([]string{id}, facts...))
}

// digestOf returns a name of machines that have texts in common.
func digestOf(kind string, texts []string) string {
	h := sha256.New()
	for _, t := range append([]string{kind}, texts...) {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(t))))
		_, _ = h.Write([]byte(t))
	}
	return hex.EncodeToString(h.Sum(nil))
}
