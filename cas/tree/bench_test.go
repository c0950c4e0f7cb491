package tree

import (
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

var benchSizes = []int{20, 1_000, 100_000}

func BenchmarkParse(b *testing.B) {
	for _, n := range benchSizes {
		encoded := marshal(b, largeDirectory(n))
		b.Run(fmt.Sprintf("ours/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(digest.SHA256, encoded); err != nil {
					b.Fatal(err)
				}
			}
			perEntry(b, n)
		})
		b.Run(fmt.Sprintf("unmarshal/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := proto.Unmarshal(encoded, new(repb.Directory)); err != nil {
					b.Fatal(err)
				}
			}
			perEntry(b, n)
		})
	}
}

func perEntry(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
}

func BenchmarkLook(b *testing.B) {
	for _, n := range benchSizes {
		d, err := Parse(digest.SHA256, marshal(b, largeDirectory(n)))
		if err != nil {
			b.Fatal(err)
		}
		names := make([]string, n)
		for i := range names {
			names[i] = d.At(i).Name
		}
		b.Run(fmt.Sprintf("find/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.Find(names[i*7919%n])
			}
		})
		b.Run(fmt.Sprintf("absent/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.Find("entry-00000013.h")
			}
		})
		b.Run(fmt.Sprintf("at/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.At(i % n)
			}
		})
		b.ReportMetric(float64(d.Bytes())/float64(n), "bytes/entry")
	}
}
