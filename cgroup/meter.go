package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is the resource usage of the commands of a slot, with all processes that they start. Values
// that this machine does not count are zero.
type Usage struct {
	User, System time.Duration // of CPU
	// Throttled is how long the slot was kept from running because its Quota was used up.
	Throttled time.Duration
	// MemoryPeak is the highest charge of the slot, in bytes: processes, page cache, tmpfs files,
	// kernel memory. MemoryBefore is the charge at the beginning: page cache that earlier commands
	// left, which the kernel frees when it needs memory. The commands' own peak is between the
	// difference of the two and MemoryPeak. Zero if the kernel cannot measure the peak of one
	// period (cgroup v2 before Linux 6.12, unless it was a new record).
	MemoryPeak, MemoryBefore int64
	// OOMKills is how many processes the kernel killed for lack of memory. LimitReached reports
	// that the slot was out of memory, not the machine.
	OOMKills     int64
	LimitReached bool
	// ReadBytes and WrittenBytes went to block devices (v2 only).
	ReadBytes, WrittenBytes int64
	// How long some process of the slot, or all of its runnable ones, waited for the resource
	// (pressure stall information; v2 only).
	CPUSome, MemorySome, MemoryFull, IOSome, IOFull time.Duration
}

// A Meter measures the commands of one slot, one after the other. It holds files open until Close,
// and one goroutine uses it.
type Meter struct {
	files  []*os.File
	gauges []gauge
	peak   *os.File // nil: there is none
	// peakResets reports that a write to peak resets it.
	peakResets bool
	current    *os.File

	limit    int64 // of memory
	before   counters
	counted  bool // before is of now: nothing ran since
	lastPeak int64
	current0 int64
	buffer   []byte

	descriptors map[*os.File]int // of files that were read
}

// counters only grow.
type counters struct {
	user, system, throttled                         time.Duration
	oomKills, limitHits, read, written              int64
	cpuSome, memorySome, memoryFull, ioSome, ioFull time.Duration
}

// A gauge is a file of counters.
type gauge struct {
	file *os.File
	read func(*counters, []byte)
}

// Meter opens the slot's figures. Only the Slot that Parent.Slot returned has them.
func (s *Slot) Meter() (*Meter, error) {
	if s.dir == "" {
		return nil, errors.New("meter slot group: it is only attached")
	}
	m := &Meter{limit: s.handle.Limits.Memory, buffer: make([]byte, 4096), descriptors: map[*os.File]int{}}
	err := m.open(s)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("meter slot group: %w", err), m.Close())
	}
	return m, nil
}

func (m *Meter) open(s *Slot) error {
	var errs []error
	add := func(dir, file string, read func(*counters, []byte)) {
		f, err := os.Open(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			return // an older kernel
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		m.files = append(m.files, f)
		if _, err := f.ReadAt(m.buffer, 0); errors.Is(err, unix.EOPNOTSUPP) {
			return // pressure is off
		}
		m.gauges = append(m.gauges, gauge{f, read})
	}
	if s.handle.Version == 2 {
		add(s.dir, "cpu.stat", readCPUv2)
		add(s.dir, "cpu.pressure", func(c *counters, b []byte) { readPressure(b, &c.cpuSome, nil) })
		add(s.dir, "memory.pressure", func(c *counters, b []byte) { readPressure(b, &c.memorySome, &c.memoryFull) })
		add(s.dir, "io.pressure", func(c *counters, b []byte) { readPressure(b, &c.ioSome, &c.ioFull) })
	} else if acct, ok := s.controls["cpuacct"]; ok {
		add(acct.dir, "cpuacct.usage_user", func(c *counters, b []byte) { c.user = time.Duration(number(b)) })
		add(acct.dir, "cpuacct.usage_sys", func(c *counters, b []byte) { c.system = time.Duration(number(b)) })
	}
	if cpu, ok := s.controls["cpu"]; ok && cpu.version == 1 {
		add(cpu.dir, "cpu.stat", func(c *counters, b []byte) {
			c.throttled = time.Duration(value(b, "throttled_time"))
		})
	}
	if io, ok := s.controls["io"]; ok {
		add(io.dir, "io.stat", readIO)
	}
	if memory, ok := s.controls["memory"]; ok {
		peak, current := "memory.peak", "memory.current"
		if memory.version == 1 {
			peak, current = "memory.max_usage_in_bytes", "memory.usage_in_bytes"
			// It counts kills in this group, not below.
			add(filepath.Join(memory.dir, runName), "memory.oom_control", func(c *counters, b []byte) { c.oomKills = value(b, "oom_kill") })
		} else {
			add(memory.dir, "memory.events", func(c *counters, b []byte) {
				c.oomKills, c.limitHits = value(b, "oom_kill"), value(b, "oom")
			})
		}
		errs = append(errs, m.openPeak(filepath.Join(memory.dir, peak), filepath.Join(memory.dir, current)))
	}
	return errors.Join(errs...)
}

func (m *Meter) openPeak(peak, current string) (err error) {
	if m.current, err = os.Open(current); err != nil {
		return err
	}
	m.files = append(m.files, m.current)
	// A peak that can be reset is reset for this descriptor alone under v2.
	if m.peak, err = os.OpenFile(peak, os.O_RDWR, 0); err == nil {
		m.peakResets = true
	} else if m.peak, err = os.Open(peak); errors.Is(err, fs.ErrNotExist) {
		m.peak = nil // v2 before Linux 5.19
		return nil
	} else if err != nil {
		return err
	}
	m.files = append(m.files, m.peak)
	return nil
}

// Begin starts a measurement; End ends it. It costs less if the last one was ended.
func (m *Meter) Begin() error {
	if !m.counted {
		before, err := m.count()
		if err != nil {
			return fmt.Errorf("meter slot group: %w", err)
		}
		m.before = before
	}
	m.counted = false
	if err := m.beginMemory(); err != nil {
		return fmt.Errorf("meter slot group: %w", err)
	}
	return nil
}

func (m *Meter) beginMemory() error {
	if m.current == nil {
		return nil
	}
	var err error
	if m.current0, err = m.number(m.current); err != nil {
		return err
	}
	if m.peak == nil {
		return nil
	}
	if m.peakResets {
		if _, err = m.peak.WriteAt([]byte("0"), 0); err != nil {
			m.peakResets = false // a kernel with a misleading mode of the file
		}
	}
	m.lastPeak, err = m.number(m.peak)
	return err
}

// End returns the usage since Begin. Call it after the last command has ended.
func (m *Meter) End() (Usage, error) {
	now, err := m.count()
	if err != nil {
		return Usage{}, fmt.Errorf("meter slot group: %w", err)
	}
	b := m.before
	u := Usage{
		User: now.user - b.user, System: now.system - b.system, Throttled: now.throttled - b.throttled,
		OOMKills: now.oomKills - b.oomKills, LimitReached: now.limitHits > b.limitHits,
		ReadBytes: now.read - b.read, WrittenBytes: now.written - b.written,
		CPUSome: now.cpuSome - b.cpuSome, MemorySome: now.memorySome - b.memorySome, MemoryFull: now.memoryFull - b.memoryFull,
		IOSome: now.ioSome - b.ioSome, IOFull: now.ioFull - b.ioFull,
		MemoryBefore: m.current0,
	}
	m.before, m.counted = now, true
	if m.peak == nil {
		return u, nil
	}
	peak, err := m.number(m.peak)
	if err != nil {
		return u, fmt.Errorf("meter slot group: %w", err)
	}
	if m.peakResets || peak > m.lastPeak {
		u.MemoryPeak = peak
	}
	// v1 does not count how often the limit was the reason.
	u.LimitReached = u.LimitReached || (u.OOMKills > 0 && m.limit > 0 && u.MemoryPeak > m.limit-m.limit/20)
	return u, nil
}

func (m *Meter) count() (counters, error) {
	var c counters
	for _, g := range m.gauges {
		text, err := m.text(g.file)
		if err != nil {
			return c, err
		}
		g.read(&c, text)
	}
	return c, nil
}

// text is valid until the next call. If the file is longer than the buffer, it is the beginning,
// which in all files here has the needed values.
func (m *Meter) text(f *os.File) ([]byte, error) {
	// ReadAt would ask for the end as well, for which the kernel counts everything once more.
	fd, known := m.descriptors[f]
	if !known { // Fd asks the kernel each time
		fd = int(f.Fd())
		m.descriptors[f] = fd
	}
	n, err := unix.Pread(fd, m.buffer, 0)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return m.buffer[:n], nil
}

func (m *Meter) number(f *os.File) (int64, error) {
	text, err := m.text(f)
	return number(text), err
}

// Close closes the files.
func (m *Meter) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	m.files, m.gauges, m.peak, m.current = nil, nil, nil, nil
	return errors.Join(errs...)
}

// number reads a file with one number. Other contents are 0, like an unknown value.
func number(text []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

// value finds the number after a key at the beginning of a line.
func value(text []byte, key string) int64 {
	for line := range bytes.Lines(text) {
		if name, rest, ok := bytes.Cut(line, []byte(" ")); ok && string(name) == key {
			return number(rest)
		}
	}
	return 0
}

func readCPUv2(c *counters, text []byte) {
	c.user = time.Duration(value(text, "user_usec")) * time.Microsecond
	c.system = time.Duration(value(text, "system_usec")) * time.Microsecond
	c.throttled = time.Duration(value(text, "throttled_usec")) * time.Microsecond
}

// readPressure reads lines such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func readPressure(text []byte, some, full *time.Duration) {
	for line := range bytes.Lines(text) {
		_, total, ok := bytes.Cut(line, []byte(" total="))
		waited := time.Duration(number(total)) * time.Microsecond
		switch {
		case !ok:
		case bytes.HasPrefix(line, []byte("some ")):
			*some = waited
		case bytes.HasPrefix(line, []byte("full ")) && full != nil:
			*full = waited
		}
	}
}

// readIO adds up lines such as "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func readIO(c *counters, text []byte) {
	for field := range bytes.FieldsSeq(text) {
		switch name, n, _ := bytes.Cut(field, []byte("=")); string(name) {
		case "rbytes":
			c.read += number(n)
		case "wbytes":
			c.written += number(n)
		}
	}
}
