package finished

import (
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// digestsBytes is the size of the memory that the texts of many digests share.
const digestsBytes = 16 << 10

// digests make the texts of digests, in one piece of memory after another: a piece of garbage for
// each text costs several times as much.
type digests struct{ memory strings.Builder }

// text is digest.Text.
func (t *digests) text(d *repb.Digest) string {
	if d == nil {
		return ""
	}
	var room [20]byte
	size := strconv.AppendInt(room[:0], d.GetSizeBytes(), 10)
	if t.memory.Cap()-t.memory.Len() < len(d.GetHash())+1+len(size) {
		t.memory = strings.Builder{}
		t.memory.Grow(digestsBytes)
	}
	from := t.memory.Len()
	t.memory.WriteString(d.GetHash())
	t.memory.WriteByte('/')
	t.memory.Write(size)
	return t.memory.String()[from:]
}
