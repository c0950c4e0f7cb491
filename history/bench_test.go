package history

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

var (
	batch [4096]*historypb.Record
	made  int
)

// fillBatch makes the next records, which no earlier batch had.
func fillBatch() {
	for i := range batch {
		batch[i] = recordOf(made)
		made++
	}
}

// BenchmarkAdd measures the cost of a record, including the writes that follow.
func BenchmarkAdd(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range b.N {
		if i%4096 == 0 {
			b.StopTimer()
			fillBatch()
			b.StartTimer()
		}
		s.Add(batch[i%4096])
		if i%1000 == 999 {
			s.write(false)
		}
	}
	s.write(true)
	b.ReportMetric(float64(s.Stats().Bytes)/float64(b.N), "B/record")
}

// BenchmarkBolt measures the same with a bbolt file ordered by time, with the indexes to find a
// record by name, action and invocation.
func BenchmarkBolt(b *testing.B) {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "db"), 0o600, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	buckets := [][]byte{[]byte("records"), []byte("operation"), []byte("action"), []byte("invocation")}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for from := 0; from < b.N; from += 4096 {
		b.StopTimer()
		fillBatch()
		b.StartTimer()
		if err := db.Update(func(tx *bbolt.Tx) error {
			for i := from; i < min(from+4096, b.N); i++ {
				r := batch[i%4096]
				encoded, err := proto.Marshal(r)
				if err != nil {
					return err
				}
				key := binary.BigEndian.AppendUint64(nil, uint64(i))
				if err := tx.Bucket(buckets[0]).Put(key, encoded); err != nil {
					return err
				}
				for at, text := range []string{r.GetOperation(), r.GetAction(), r.GetInvocation()} {
					if err := tx.Bucket(buckets[1+at]).Put(append([]byte(text), key...), nil); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
