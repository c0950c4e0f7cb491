package uncharged

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

const (
	// lookBytes of the table of locks are read at a place. The kernel holds a page ready.
	lookBytes = 2048
	// shortestLock is how many bytes a line of the table has at least.
	shortestLock = 40
	// countedTo is how exact a count of locks is: to one part in so many.
	countedTo = 8
)

// Locks counts the locks of files that the kernel shows, up to most or some more, with an error of
// up to one eighth: there may be more. It returns 0 if there are at most few.
//
// Reading the whole table takes the kernel a time that grows with the square of the number of
// locks. Seeking in it takes a time that grows with the number of locks before the position. Each
// line begins with its number.
func Locks(few, most int) (int, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return countLocks(f, few, most)
}

// countLocks counts in a table like that of proc_locks(5).
func countLocks(table io.ReaderAt, few, most int) (n int, err error) {
	start := few * shortestLock
	if n, err = lockAt(table, start); err != nil || n == 0 {
		return 0, err
	}
	// The table has a lock with the number n behind the offset reached, and none behind end.
	reached, end, step := start, 0, max(start/2, lookBytes)
	for n < most && (end == 0 || end-reached > max(lookBytes, reached/countedTo)) {
		next := reached + step
		if end > 0 {
			next = reached + (end-reached)/2
		}
		number, err := lockAt(table, next)
		switch {
		case err != nil:
			return 0, err
		case number == 0:
			end = next
		default:
			reached, n, step = next, number, 2*step
		}
	}
	if n <= few {
		n = 0
	}
	return n, nil
}

// lockAt returns the number of a lock behind an offset; 0: there is none.
func lockAt(table io.ReaderAt, offset int) (int, error) {
	text := make([]byte, 1+lookBytes)
	if offset == 0 {
		text[0] = '\n'
	}
	got, err := table.ReadAt(text[1:], int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("count locks: %w", err)
	}
	for text = text[:1+got]; ; {
		begin := bytes.LastIndexByte(text, '\n')
		if begin < 0 {
			return 0, nil
		}
		if number, _, ok := bytes.Cut(text[begin+1:], []byte(":")); ok {
			n, err := strconv.Atoi(string(number))
			if err != nil {
				return 0, fmt.Errorf("count locks: %w", err)
			}
			return n, nil
		}
		text = text[:begin]
	}
}
