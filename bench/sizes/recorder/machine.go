package recorder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
)

const (
	// period is that of all groups. A short one makes a slow CPU a steady one.
	period = 20 * time.Millisecond
	// every is how often new threads get a group.
	every = 10 * time.Millisecond
	// mostThreads get groups; further threads share the CPU of another one.
	mostThreads = 64
	// shares is the weight of all machines together. It is high, so that they get their CPUs although
	// other programs run.
	shares = "65536"
)

// threads gives each thread of a slot a group with the speed of one CPU.
type threads struct {
	group  string // of the commands, in the hierarchy of the cpu controller
	quota  string // of one thread
	groups []string
	fork   int // the process that starts commands in the group
}

// newThreads limits the slot to cpus of a speed.
func newThreads(slot *cgroup.Slot, cpus int, speed float64) (*threads, error) {
	t := &threads{}
	for _, dir := range slot.Handle().Threads {
		if _, err := os.Stat(filepath.Join(dir, "cpu.cfs_quota_us")); err == nil {
			t.group = dir
		}
	}
	if t.group == "" {
		return nil, errors.New("no cgroup v1 hierarchy has the controller cpu, which is needed for groups of single threads")
	}
	one := int64(float64(period.Microseconds()) * speed)
	t.quota = strconv.FormatInt(one, 10)
	all := strconv.FormatInt(one*int64(cpus), 10)
	slotGroup := filepath.Dir(t.group)
	return t, errors.Join(
		os.WriteFile(filepath.Join(filepath.Dir(slotGroup), "cpu.shares"), []byte(shares), 0),
		limit(slotGroup, all), limit(t.group, all),
	)
}

// limit gives a group a quota of microseconds in each period.
func limit(group, quota string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(group, "cpu.cfs_period_us"), []byte(strconv.FormatInt(period.Microseconds(), 10)), 0),
		os.WriteFile(filepath.Join(group, "cpu.cfs_quota_us"), []byte(quota), 0),
	)
}

// run gives new threads their groups until ctx ends.
func (t *threads) run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := t.spread(); err != nil {
			return fmt.Errorf("give threads their CPUs: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// spread moves threads to groups until none is shared.
func (t *threads) spread() error {
	homeless, err := t.in(t.group)
	if err != nil {
		return err
	}
	homeless = slices.DeleteFunc(homeless, func(tid string) bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%s", t.fork, tid))
		return err == nil
	})
	var free []string
	for _, group := range t.groups {
		list, err := t.in(group)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			free = append(free, group)
		} else {
			homeless = append(homeless, list[1:]...)
		}
	}
	for _, tid := range homeless {
		if len(free) == 0 {
			if len(t.groups) == mostThreads {
				return nil
			}
			group := filepath.Join(t.group, "thread"+strconv.Itoa(len(t.groups)))
			if err := errors.Join(os.Mkdir(group, 0o755), limit(group, t.quota)); err != nil {
				return err
			}
			t.groups, free = append(t.groups, group), append(free, group)
		}
		err := os.WriteFile(filepath.Join(free[0], "tasks"), []byte(tid), 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		if err == nil {
			free = free[1:]
		}
	}
	return nil
}

// in lists the threads of a group.
func (t *threads) in(group string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(group, "tasks"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	return strings.Fields(string(text)), err
}
