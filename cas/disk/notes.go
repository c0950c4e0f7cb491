package disk

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// notesEvery is the interval between writes of the notes.
const notesEvery = 10 * time.Minute

// notes keep proofs over a restart of the program: verified blobs, times, and the marks of their
// files, in one file, which is replaced by a rename. They are valid if the file is complete and
// this program has written it since the machine started.
//
// The file has a heading in lines of text, a record for each blob, and a SHA-256 of everything
// before. A record is the digest function, the hash, and the size, the time in Unix seconds, which
// is 0 if it is too recent, and the mark, with eight bytes each in little endian.
type notes struct {
	files *files
	path  string
	log   *zap.Logger

	loading sync.WaitGroup // nothing is written before all is loaded
	writing sync.Mutex     // held while the file is written; before files.mu
	mu      sync.Mutex
	timer   *time.Timer // guarded by mu; of the next write
	closed  bool        // guarded by mu
}

const noteBytes = 1 + digest.HashSize + 3*8

// notesChunk is how many blobs are read while the store's lock is held once.
const notesChunk = 1024

// notesHeading is the heading of valid notes, and empty if none can be valid.
func notesHeading() string {
	boot := folder.BootID()
	program, err := programID()
	if boot == "" || err != nil {
		return ""
	}
	return "forerunner verified blobs 1\n" + boot + "\n" + program + "\n"
}

// programID distinguishes the file of this program from all others on this machine.
func programID() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer f.Close()
	m, err := tamper.MarkOfOpen(f.Fd())
	return fmt.Sprintf("%016x", m), err
}

// load passes the notes to the store. It does not report why notes are invalid: the blobs are
// verified when they are used.
func (n *notes) load() (blobs int) {
	heading := notesHeading()
	b, err := os.ReadFile(n.path)
	if err != nil || heading == "" || len(b) < len(heading)+sha256.Size {
		return 0
	}
	whole, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	records, ours := bytes.CutPrefix(whole, []byte(heading))
	if got := sha256.Sum256(whole); !ours || !bytes.Equal(got[:], sum) {
		return 0
	}
	for len(records) >= noteBytes {
		chunk := records[:min(len(records)/noteBytes, notesChunk)*noteBytes]
		records = records[len(chunk):]
		blobs += n.believe(chunk)
	}
	return blobs
}

// believe makes the store adopt records.
func (n *notes) believe(records []byte) (blobs int) {
	some := make([]proven, 0, len(records)/noteBytes)
	for ; len(records) > 0; records = records[noteBytes:] {
		if d, known, err := parseNote(records[:noteBytes]); err == nil {
			some = append(some, proven{d, known})
		}
	}
	return n.files.believe(some)
}

func appendNote(b []byte, d digest.Digest, p proof) []byte {
	b = d.AppendHash(append(b, byte(d.Function())))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.SizeBytes()))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.at))
	return binary.LittleEndian.AppendUint64(b, p.mark)
}

func parseNote(b []byte) (d digest.Digest, p proof, err error) {
	numbers := b[1+digest.HashSize:]
	size := int64(binary.LittleEndian.Uint64(numbers))
	p = proof{at: uint32(binary.LittleEndian.Uint64(numbers[8:])), mark: binary.LittleEndian.Uint64(numbers[16:])}
	d, err = digest.FromHash(digest.Function(b[0]), [digest.HashSize]byte(b[1:]), size)
	return d, p, err
}

// start loads the notes in the background: a million take as long as a third of opening their
// store. They are written at intervals, until close.
func (n *notes) start() {
	n.loading.Go(func() {
		if blobs := n.load(); blobs > 0 {
			n.log.Info("loaded the times of verification",
				zap.String("dir", n.files.Dir), zap.Int("blobs", blobs))
		}
	})
	n.schedule()
}

// schedule writes the notes some time later, and again.
func (n *notes) schedule() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.timer = time.AfterFunc(notesEvery, func() { n.write(); n.schedule() })
	}
}

// close writes the notes for the last time.
func (n *notes) close() {
	n.mu.Lock()
	n.closed = true
	n.timer.Stop()
	n.mu.Unlock()
	n.write()
}

// write writes the notes, if they have changed. That they cannot be written, as on a
// full disk, costs verifications after the next start.
func (n *notes) write() {
	n.loading.Wait()
	n.writing.Lock()
	defer n.writing.Unlock()
	changed := n.files.haveProved()
	heading := notesHeading()
	if !changed || heading == "" {
		return
	}
	temp := filepath.Join(n.files.TempDir(), "incoming-notes")
	young, err := n.writeTo(temp, heading)
	if err == nil {
		err = os.Rename(temp, n.path)
	}
	if young {
		n.files.noteLater()
	}
	if err != nil {
		_ = os.Remove(temp)
		n.log.Warn("cannot save the times of verification", zap.Error(err))
	}
}

// writeTo writes the notes to a new file without syncing. So notes may reach the disk before the
// bytes that they are about, and the disk may be detached and come back, or be replaced by a copy,
// while the machine runs. Therefore a verification is noted only after its bytes have had time to
// reach the disk. young reports whether some verifications are too recent for that.
func (n *notes) writeTo(path, heading string) (young bool, err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	defer file.Close()
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(sum, file), largeWriteBytes)
	_, err = out.WriteString(heading)
	for chunk := range n.files.proofs(notesChunk) {
		record := make([]byte, 0, noteBytes)
		for _, one := range chunk {
			if one.proof.doubt {
				one.proof.at, one.proof.mark = 0, 0 // no file has that mark
			} else if one.proof.age() < unsyncedFor {
				one.proof.at, young = 0, true
			}
			if _, err = out.Write(appendNote(record, one.key, one.proof)); err != nil {
				return young, err
			}
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err == nil {
		_, err = file.Write(sum.Sum(nil))
	}
	if err == nil {
		err = file.Close()
	}
	return young, err
}
