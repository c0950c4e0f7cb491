package scrub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server"
)

// The rows of a store's hashing of blobs that others read, and of opening a large store.
const (
	rowHashCPU     = "hash_cpu_s_per_gib"
	rowStreamCPU   = "stream_cpu_s_per_gib"
	rowVerifiedCPU = "stream_verified_cpu_s_per_gib"
	rowOpen        = "open_store_ms"

	streamBytes = 64 << 20
)

// measureStreams has a client read a blob from the page cache over loopback: from its second byte
// on, which is not verified, and whole.
func measureStreams(ctx context.Context, o *report.Options, dir string) (rows []report.Row, err error) {
	if !o.Wants(rowHashCPU, rowStreamCPU, rowVerifiedCPU) {
		return nil, nil
	}
	store, err := disk.Open(dir, disk.Options{MaxBytes: 4 * streamBytes})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	content := make([]byte, streamBytes)
	for at := 0; at < len(content); at += 8 {
		binary.LittleEndian.PutUint64(content[at:], uint64(at))
	}
	d := digest.Of(digest.SHA256, content)
	if err := store.PutBytes(ctx, d, content); err != nil {
		return nil, err
	}
	conn, stop, err := serveStore(store)
	if err != nil {
		return nil, err
	}
	defer stop()
	read := func(offset int64) error { return readStream(ctx, bytestream.NewByteStreamClient(conn), d, offset) }
	for _, c := range []struct {
		row string
		do  func() error
	}{
		{rowHashCPU, func() error { digest.Of(digest.SHA256, content); return nil }},
		{rowStreamCPU, func() error { return read(1) }},
		{rowVerifiedCPU, func() error { return read(0) }},
	} {
		if !o.Wants(c.row) {
			continue
		}
		report.Progress("%s, %d runs", c.row, o.Runs)
		var cpus []float64
		for range o.Runs {
			before := report.CPUTime()
			if err := c.do(); err != nil {
				return nil, err
			}
			cpus = append(cpus, (report.CPUTime()-before).Seconds()*(1<<30)/streamBytes)
		}
		rows = append(rows, report.NewRow(c.row, report.Median(cpus), "s/GiB"))
	}
	return rows, nil
}

// serveStore serves a store on loopback. The caller calls stop.
func serveStore(store *disk.Store) (conn *grpc.ClientConn, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	g := grpc.NewServer()
	server.New(store, nil, server.Options{}).Register(g)
	go func() { _ = g.Serve(listener) }() // returns after stop
	conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		g.Stop()
		return nil, nil, err
	}
	return conn, func() {
		_ = conn.Close()
		g.Stop()
	}, nil
}

func readStream(ctx context.Context, c bytestream.ByteStreamClient, d digest.Digest, offset int64) error {
	stream, err := c.Read(ctx, &bytestream.ReadRequest{ResourceName: d.BlobName(), ReadOffset: offset})
	if err != nil {
		return err
	}
	read := offset
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) && read == d.SizeBytes() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", read, err)
		}
		read += int64(len(answer.GetData()))
	}
}

// measureOpen opens a store of many one-byte blobs, whose files it writes itself.
func measureOpen(o *report.Options, dir string, blobs int) ([]report.Row, error) {
	if !o.Wants(rowOpen) {
		return nil, nil
	}
	report.Progress("%s: %d files", rowOpen, blobs)
	if err := makeBlobs(dir, blobs); err != nil {
		return nil, err
	}
	var times []float64
	for range o.Runs {
		began := time.Now()
		store, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 40})
		if err != nil {
			return nil, err
		}
		took, have := time.Since(began), store.Stats().Blobs
		if err := store.Close(); err != nil {
			return nil, err
		}
		if have != int64(blobs) {
			return nil, fmt.Errorf("the store has %d blobs, not %d", have, blobs)
		}
		times = append(times, report.Milliseconds(took))
	}
	row := report.NewRow(rowOpen, report.Median(times), "ms")
	row.Note = fmt.Sprintf("%d blobs", blobs)
	return []report.Row{row}, nil
}

func makeBlobs(dir string, blobs int) error {
	var hash [digest.HashSize]byte
	for i := range uint64(blobs) {
		// The hashes are wrong, because there is only one right hash for each byte. Opening does
		// not verify them. They must differ so that the files spread over the folders.
		binary.BigEndian.PutUint64(hash[:], i*0x9e3779b97f4a7c15)
		d, err := digest.FromHash(digest.SHA256, hash, 1)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(disk.BlobPath(d)))
		err = os.WriteFile(path, []byte("x"), 0o444)
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o444))
		}
		if err != nil {
			return err
		}
	}
	// As if the store had been opened since the machine's start: then opening verifies nothing.
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "lock"), bytes.TrimSpace(boot), 0o600)
}
