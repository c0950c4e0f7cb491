package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
)

// A folder becomes an input root below a prefix of its own.
func ExampleScan() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "greeting"), []byte("hello\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	inputs, err := client.Scan(context.Background(), digest.SHA256, []client.Mount{{Prefix: "src", Dir: dir}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(inputs.Files, "file,", inputs.Bytes, "bytes,", len(inputs.Blobs), "blobs")
	// Output: 1 file, 6 bytes, 3 blobs
}

// Variables and properties are sorted by name, as REv2 wants.
func ExampleNewCommand() {
	command := client.NewCommand([]string{"make", "all"}, []string{"out"}, "src",
		map[string]string{"PATH": "/usr/bin:/bin", "LANG": "C"}, client.Properties{"pool=linux"})
	for _, v := range command.GetEnvironmentVariables() {
		fmt.Printf("%s=%s\n", v.GetName(), v.GetValue())
	}
	// Output:
	// LANG=C
	// PATH=/usr/bin:/bin
}

// The command runs on a folder of this machine, and its outputs are downloaded.
func ExampleExecute() {
	ctx := context.Background()
	conn, err := grpc.NewClient("127.0.0.1:8980", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	inputs, err := client.Scan(ctx, digest.SHA256, []client.Mount{{Dir: "src"}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := client.Execute(ctx, conn, client.Request{
		Function: digest.SHA256, Inputs: inputs, CancelWithContext: true,
		Command: client.NewCommand([]string{"/bin/sh", "-c", "wc -l * > lines"}, []string{"lines"}, "", nil, nil),
	})
	if err != nil {
		log.Fatal(err) // the outcome is unknown
	}
	if outcome.Status != nil {
		log.Fatal(outcome.Status) // the farm could not run it
	}
	storage := casclient.New(conn, casclient.Options{})
	if err := client.Download(ctx, storage, digest.SHA256, outcome.Result, "made"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", outcome.Result.GetExitCode())
}
