// Command generate regenerates the Go code of the schemas below proto/. It needs neither protoc nor
// foreign .proto files: imported schemas are taken from the descriptors linked into the Go modules
// that define them. The two plugins have the versions that go.mod pins.
//
// Run it from the repository root: go run ./proto/generate.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	_ "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var names []string
	err := filepath.WalkDir("proto", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".proto") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{},
			protocompile.ResolverFunc(linkedSchema),
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
	}
	seen := map[string]bool{}
	for _, f := range files {
		request.ProtoFile = appendWithImports(request.ProtoFile, f, seen)
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := runPlugin(ctx, plugin, request); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// linkedSchema finds an import among the descriptors linked into this program.
func linkedSchema(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Proto: protodesc.ToFileDescriptorProto(f)}, nil
}

// appendWithImports appends f after everything that it imports, as plugins expect.
func appendWithImports(
	list []*descriptorpb.FileDescriptorProto, f protoreflect.FileDescriptor, seen map[string]bool,
) []*descriptorpb.FileDescriptorProto {
	if seen[f.Path()] {
		return list
	}
	seen[f.Path()] = true
	for i := range f.Imports().Len() {
		list = appendWithImports(list, f.Imports().Get(i).FileDescriptor, seen)
	}
	return append(list, protodesc.ToFileDescriptorProto(f))
}

func runPlugin(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		if err := os.WriteFile(f.GetName(), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
		fmt.Println(f.GetName())
	}
	return nil
}
