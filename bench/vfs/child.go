package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The amount of work of the child processes, the same for both sides. Tests do a part of it.
const (
	createFiles   = 20_000
	randomReads   = 100_000
	randomSize    = 4 << 10
	sequentialBuf = 1 << 20
)

// NewChildCommand is the command that this program runs in a child process, through the launcher:
// "bench child WORK DIR [LIST]" works in DIR and prints the duration of the work in seconds.
func NewChildCommand() *cobra.Command {
	part := 1
	cmd := &cobra.Command{
		Use: "child", Hidden: true, Args: cobra.RangeArgs(2, 3),
		RunE: func(_ *cobra.Command, args []string) error {
			var paths []string
			if len(args) == 3 {
				var err error
				if paths, err = readList(args[2]); err != nil {
					return err
				}
			}
			took, err := work(args[0], args[1], paths, part)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Println(took.Seconds())
			return err
		},
	}
	cmd.Flags().IntVar(&part, "part", part, "do only one of `n` of the files to create and the places to read")
	return cmd
}

func work(name, dir string, paths []string, part int) (time.Duration, error) {
	switch name {
	case "touch":
		return touch(dir)
	case "open-small":
		return openSmall(dir, paths)
	case "seq-read":
		return seqRead(dir)
	case "random-read":
		return randomRead(dir, randomReads/part)
	case "create-unlink":
		return createUnlink(dir, createFiles/part)
	}
	return 0, errors.New("unknown work")
}

func readList(name string) (paths []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		paths = append(paths, lines.Text())
	}
	return paths, lines.Err()
}

// touch reads all files below dir.
func touch(dir string) (time.Duration, error) {
	began := time.Now()
	buffer := make([]byte, sequentialBuf)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return readWhole(path, buffer)
	})
	return time.Since(began), err
}

func readWhole(path string, buffer []byte) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Read(fd, buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return nil
		}
	}
}

// openSmall opens, reads and closes files with the fewest system calls.
func openSmall(dir string, paths []string) (time.Duration, error) {
	full := make([]string, len(paths))
	for i, p := range paths {
		full[i] = dir + "/" + p
	}
	buffer := make([]byte, sequentialBuf)
	began := time.Now()
	for _, p := range full {
		if err := readWhole(p, buffer); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func seqRead(path string) (time.Duration, error) {
	buffer := make([]byte, sequentialBuf)
	began := time.Now()
	err := readWhole(path, buffer)
	return time.Since(began), err
}

// randomRead reads the same random places each time.
func randomRead(path string, reads int) (time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	blocks := info.Size() / randomSize
	if blocks == 0 {
		return 0, fmt.Errorf("%s is too small", path)
	}
	random := rand.New(rand.NewPCG(1, 2))
	offsets := make([]int64, reads)
	for i := range offsets {
		offsets[i] = random.Int64N(blocks) * randomSize
	}
	buffer := make([]byte, randomSize)
	began := time.Now()
	for _, at := range offsets {
		if _, err := f.ReadAt(buffer, at); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// createUnlink creates files of one line in a new folder, stats each and removes them.
func createUnlink(dir string, files int) (time.Duration, error) {
	made := filepath.Join(dir, "made")
	content := []byte(strings.Repeat("x", 99) + "\n")
	names := make([]string, files)
	for i := range names {
		names[i] = fmt.Sprintf("%s/file-%d", made, i)
	}
	began := time.Now()
	if err := os.Mkdir(made, 0o755); err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := create(name, content); err != nil {
			return 0, err
		}
	}
	var st unix.Stat_t
	for _, name := range names {
		if err := unix.Stat(name, &st); err != nil {
			return 0, &os.PathError{Op: "stat", Path: name, Err: err}
		}
		if st.Size != int64(len(content)) {
			return 0, fmt.Errorf("%s has %d bytes, %d were written", name, st.Size, len(content))
		}
	}
	for _, name := range names {
		if err := unix.Unlink(name); err != nil {
			return 0, &os.PathError{Op: "unlink", Path: name, Err: err}
		}
	}
	if err := os.Remove(made); err != nil {
		return 0, err
	}
	return time.Since(began), nil
}

func create(name string, content []byte) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	n, err := unix.Write(fd, content)
	if err == nil && n < len(content) {
		err = io.ErrShortWrite
	}
	return errors.Join(err, unix.Close(fd))
}
