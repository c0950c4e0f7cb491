package hugepages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/pause"
)

const (
	// large is how much memory a process has that needs huge pages. A smaller one gains less from them
	// than the copies of its memory cost.
	large = 1 << 30
	// every is the time between two looks at the memory. A look at memory that is on huge pages costs
	// about a microsecond for each of them.
	every = 5 * time.Second
	// rest is the time until the next look if the kernel has no huge pages now, or never.
	rest = 10 * time.Minute
	// idle is for how long the kernel is left alone after each page, as a multiple of the time that
	// the page took: some milliseconds, most of it to find one. So a process that grows gives this a
	// tenth of one CPU.
	idle = 9
	// known is longer than it takes to learn that a page is huge.
	known = time.Millisecond / 10
	// most is the size of the largest pages that are worth the search: on some machines they are
	// hundreds of megabytes.
	most = 32 << 20
)

// folder has what the kernel says of its huge pages; see Documentation/admin-guide/mm/transhuge.rst.
const folder = "/sys/kernel/mm/transparent_hugepage/"

// Keep keeps the memory of this process on huge pages, once it is large, until ctx ends. It returns
// at once where the operator has turned them off for all processes, and does nothing before Linux 6.1.
func Keep(ctx context.Context) {
	size := pageSize()
	for size > 0 {
		next := every
		if !look(ctx, size, large, idle) {
			next = rest
		}
		if pause.For(ctx, next) != nil {
			return
		}
	}
}

// Settle does at once, without pauses, what Keep does over time. It is for measurements.
func Settle(ctx context.Context) {
	if size := pageSize(); size > 0 {
		look(ctx, size, large, 0)
	}
}

// look puts memory on huge pages, if at least least bytes can be, and reports whether another look
// soon is worthwhile. idle is the same as above.
func look(ctx context.Context, size, least uintptr, idle time.Duration) bool {
	mappings, err := anonymous()
	if err != nil {
		return false
	}
	var total uintptr
	for _, m := range mappings {
		total += m.end - m.start
	}
	if total < least {
		return true
	}
	huge, failed := 0, 0
	for _, m := range mappings {
		for page := range m.full(size) {
			began := time.Now()
			switch err := collapse(page, size); {
			case err == nil:
				huge++
			case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EBUSY): // neither a page nor room for one
				return false
			default:
				failed++
			}
			if took := time.Since(began); took > known && pause.For(ctx, idle*took) != nil {
				return true
			}
		}
	}
	return huge > 0 || failed == 0
}

// pageSize returns the size of a huge page, 0 if there are none to use.
func pageSize() uintptr {
	enabled, err := os.ReadFile(folder + "enabled")
	if err != nil || bytes.Contains(enabled, []byte("[never]")) {
		return 0
	}
	size, err := os.ReadFile(folder + "hpage_pmd_size")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 10, 64)
	if err != nil || n > most {
		return 0
	}
	return uintptr(n)
}

// A mapping is a range of addresses of this process.
type mapping struct{ start, end uintptr }

// anonymous returns the writable mappings of this process alone that belong to no file: its heap,
// among others.
func anonymous() ([]mapping, error) {
	file, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var found []mapping
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if m, ok := parse(lines.Text()); ok {
			found = append(found, m)
		}
	}
	return found, lines.Err()
}

// parse returns the mapping of a line of proc_pid_maps(5), if it is an anonymous one.
func parse(line string) (m mapping, ok bool) {
	fields := strings.Fields(line)
	// Some kernels show the purpose of an anonymous mapping.
	if len(fields) < 5 || fields[1] != "rw-p" || fields[4] != "0" || len(fields) > 5 && fields[5] != "[anon:" {
		return m, false
	}
	start, end, _ := strings.Cut(fields[0], "-")
	from, err := strconv.ParseUint(start, 16, 64)
	to, endErr := strconv.ParseUint(end, 16, 64)
	return mapping{uintptr(from), uintptr(to)}, err == nil && endErr == nil
}

// full yields the huge pages of a mapping that are in memory as a whole.
func (m mapping) full(size uintptr) iter.Seq[uintptr] {
	return func(yield func(uintptr) bool) {
		small := uintptr(os.Getpagesize())
		resident := make([]byte, size/small)
		for page := (m.start + size - 1) / size * size; page+size <= m.end; page += size {
			_, _, e := unix.Syscall(unix.SYS_MINCORE, page, size, uintptr(unsafe.Pointer(&resident[0])))
			if e == 0 && isFull(resident) && !yield(page) {
				return
			}
		}
	}
}

// isFull reports whether each page of a vector of mincore(2) is in memory.
func isFull(resident []byte) bool {
	for _, r := range resident {
		if r&1 == 0 {
			return false
		}
	}
	return true
}

// collapse puts a part of the memory of this process on a huge page.
func collapse(page, size uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, page, size, unix.MADV_COLLAPSE); e != 0 {
		return e
	}
	return nil
}
