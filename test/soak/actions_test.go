package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/test/programs"
)

// errWrongResult is a result that no fault excuses.
var errWrongResult = errors.New("wrong result")

// A soakKind is a kind of action with a known result. run is called again after a temporary
// failure, and then finds the remains of the earlier attempt.
type soakKind struct {
	name    string
	percent int
	run     func(a *soakAction, ctx context.Context) error
}

// soakKinds are all kinds; their percents sum up to 100.
var soakKinds = []soakKind{
	{"read", 35, (*soakAction).read},
	{"again", 10, (*soakAction).readAgain},
	{"fail", 10, (*soakAction).fail},
	{"files", 10, (*soakAction).files},
	{"large", 15, (*soakAction).large},
	{"orphan", 5, (*soakAction).orphan},
	{"lacking", 5, (*soakAction).lacking},
	{"timeout", 3, (*soakAction).timeout},
	{"memory", 3, (*soakAction).memory},
	{"cancelled", 2, (*soakAction).cancelled},
	{"left", 2, (*soakAction).left},
}

func pickKind(random *rand.Rand) soakKind {
	at := random.IntN(100)
	i := slices.IndexFunc(soakKinds, func(k soakKind) bool {
		at -= k.percent
		return at < 0
	})
	return soakKinds[i]
}

// A soakAction is one of them. Actions of one kind and variant have the same command, and learn
// from each other; their inputs differ.
type soakAction struct {
	*soakFarm
	number   uint64
	variant  int
	dir      string
	uploaded bool // the missing input was uploaded
}

// text returns the content of the input "text", which is unique to this action.
func (a *soakAction) text() string { return fmt.Sprintf("action %d\n", a.number) }

// request returns the request to run a script on text and files of that content.
func (a *soakAction) request(ctx context.Context, script string, files map[string][]byte) (client.Request, error) {
	in := filepath.Join(a.dir, "in")
	for name, content := range files {
		name = filepath.Join(in, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, content, 0o644)); err != nil {
			return client.Request{}, err
		}
	}
	if err := errors.Join(os.MkdirAll(in, 0o755), os.WriteFile(filepath.Join(in, "text"), []byte(a.text()), 0o644)); err != nil {
		return client.Request{}, err
	}
	inputs, err := client.Scan(ctx, digest.SHA256, []client.Mount{{Dir: in}}, nil)
	env := map[string]string{"PATH": "/usr/bin:/bin", "VARIANT": fmt.Sprint(a.variant)}
	return client.Request{
		Inputs: inputs, Command: client.NewCommand([]string{"/bin/sh", "-c", script}, []string{"out"}, "", env, nil),
	}, err
}

// execute executes r, which must end with that exit code and print text.
func (a *soakAction) execute(ctx context.Context, r client.Request, code int32, text string) (*repb.ActionResult, error) {
	outcome, err := client.Execute(ctx, a.conn, r)
	if err == nil {
		err = outcome.Status
	}
	if err != nil {
		return nil, fmt.Errorf("execute: %w", err)
	}
	got, err := client.Output(ctx, a.client, digest.SHA256, outcome.Result.GetStdoutRaw(), outcome.Result.GetStdoutDigest())
	if err != nil {
		return nil, fmt.Errorf("standard output: %w", err)
	}
	if outcome.Result.GetExitCode() != code || string(got) != text {
		return nil, fmt.Errorf("%w: exit code %d, printed %q, message %q, standard error %q; want exit code %d and %q", errWrongResult,
			outcome.Result.GetExitCode(), got, outcome.Message, outcome.Result.GetStderrRaw(), code, text)
	}
	return outcome.Result, nil
}

func (a *soakAction) script(ctx context.Context, script string, code int32, text string) error {
	r, err := a.request(ctx, script, nil)
	if err == nil {
		_, err = a.execute(ctx, r, code, text)
	}
	return err
}

func (a *soakAction) read(ctx context.Context) error {
	return a.script(ctx, "cat text", 0, a.text())
}

// readAgain runs an action that another client has run, or is running.
func (a *soakAction) readAgain(ctx context.Context) error {
	other := *a
	other.number = max(a.number/2, 1)
	return other.read(ctx)
}

func (a *soakAction) fail(ctx context.Context) error {
	return a.script(ctx, "cat text; exit 7", 7, a.text())
}

// orphan leaves a process behind.
func (a *soakAction) orphan(ctx context.Context) error {
	return a.script(ctx, "setsid sleep 4171 >/dev/null 2>&1 & cat text", 0, a.text())
}

// files has many inputs, and makes many outputs.
func (a *soakAction) files(ctx context.Context) error {
	const inputs, outputs = 100, 100
	files := map[string][]byte{}
	want := 0
	for i := range inputs {
		content := fmt.Sprintf("%d of %d\n", i, a.number)
		files[fmt.Sprintf("in/%d/%d", i%10, i)] = []byte(content)
		want += len(content)
	}
	r, err := a.request(ctx, fmt.Sprintf("cat in/*/* | wc -c; mkdir out; for i in $(seq %d); do echo $i $(cat text) >out/$i; done", outputs), files)
	if err != nil {
		return err
	}
	result, err := a.execute(ctx, r, 0, fmt.Sprintln(want))
	if err != nil {
		return err
	}
	got := filepath.Join(a.dir, "got")
	if err := client.Download(ctx, a.client, digest.SHA256, result, got); err != nil {
		return fmt.Errorf("outputs: %w", err)
	}
	for i := range outputs {
		want := fmt.Sprint(i+1, " ", a.text())
		if text, err := os.ReadFile(filepath.Join(got, "out", fmt.Sprint(i+1))); err != nil || string(text) != want {
			return fmt.Errorf("%w: output %d is %q, %w; want %q", errWrongResult, i+1, text, err, want)
		}
	}
	return nil
}

// large has an input of up to 2 MB, and returns it twice. The farm must evict blobs of other
// actions.
func (a *soakAction) large(ctx context.Context) error {
	content := make([]byte, 1+a.number%8<<18)
	_, _ = rand.NewChaCha8([32]byte{byte(a.number), byte(a.number >> 8), byte(a.number >> 16)}).Read(content)
	r, err := a.request(ctx, "cat text; cat large large >out", map[string][]byte{"large": content})
	if err != nil {
		return err
	}
	result, err := a.execute(ctx, r, 0, a.text())
	if err != nil {
		return err
	}
	if len(result.GetOutputFiles()) != 1 {
		return fmt.Errorf("%w: outputs %v", errWrongResult, result.GetOutputFiles())
	}
	got, err := client.Output(ctx, a.client, digest.SHA256, nil, result.GetOutputFiles()[0].GetDigest())
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if !bytes.Equal(got, slices.Concat(content, content)) {
		return fmt.Errorf("%w: output of %d bytes differs from the input of %d, twice", errWrongResult, len(got), len(content))
	}
	return nil
}

// lacking has an input that the storage lacks. The error must say so; then the client uploads it.
func (a *soakAction) lacking(ctx context.Context) error {
	content := []byte(fmt.Sprintf("lacking %d\n", a.number))
	r, err := a.request(ctx, "cat text lacking", map[string][]byte{"lacking": content})
	if err != nil {
		return err
	}
	want := a.text() + string(content)
	if !a.uploaded {
		without := r
		inputs := *r.Inputs
		d := digest.Of(digest.SHA256, content)
		inputs.Blobs = slices.DeleteFunc(slices.Clone(inputs.Blobs), func(b casclient.Blob) bool { return b.Digest == d })
		without.Inputs = &inputs
		_, err = a.execute(ctx, without, 0, want)
		if err == nil {
			return fmt.Errorf("%w: it was made without input %s", errWrongResult, d)
		}
		if !programs.Lacks(err, d) {
			return err
		}
		a.uploaded = true
	}
	_, err = a.execute(ctx, r, 0, want)
	return err
}

func (a *soakAction) timeout(ctx context.Context) error {
	r, err := a.request(ctx, "sleep 4172", nil)
	if err != nil {
		return err
	}
	r.Timeout = 300 * time.Millisecond
	_, err = a.execute(ctx, r, 0, "")
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
		return nil
	}
	return err
}

// memory uses more memory than a slot has. It prints first, because the kernel may kill more than
// the largest process.
func (a *soakAction) memory(ctx context.Context) error {
	return a.script(ctx, "cat text; head -c 200M /dev/zero | tail -c 200M >/dev/null", 137, a.text())
}

// left is left alone by its client, which says nothing.
func (a *soakAction) left(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	err := a.script(ctx, "sleep 2; cat text", 0, a.text())
	if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded {
		return nil
	}
	return err
}

// cancelled is cancelled by its client.
func (a *soakAction) cancelled(ctx context.Context) error {
	r, err := a.request(ctx, "sleep 4173", nil)
	if err != nil {
		return err
	}
	command, rawCommand, err := digest.OfMessage(digest.SHA256, r.Command)
	if err != nil {
		return err
	}
	action, rawAction, err := digest.OfMessage(digest.SHA256, &repb.Action{CommandDigest: command.Proto(), InputRootDigest: r.Inputs.Root.Proto()})
	if err != nil {
		return err
	}
	blobs := append(r.Inputs.Blobs, casclient.BytesBlob(command, rawCommand), casclient.BytesBlob(action, rawAction))
	if err := a.client.Upload(ctx, blobs, nil); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	stream, err := repb.NewExecutionClient(a.conn).Execute(ctx, &repb.ExecuteRequest{ActionDigest: action.Proto()})
	if err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	op, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("execute: %w", err)
	}
	_, err = longrunningpb.NewOperationsClient(a.conn.Execution).CancelOperation(ctx, &longrunningpb.CancelOperationRequest{Name: op.GetName()})
	for err == nil && !op.GetDone() {
		op, err = stream.Recv()
	}
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	var response repb.ExecuteResponse
	if err := op.GetResponse().UnmarshalTo(&response); err != nil {
		return fmt.Errorf("%w: %w", errWrongResult, err)
	}
	if code := codes.Code(response.GetStatus().GetCode()); code != codes.Canceled {
		return fmt.Errorf("cancelled: %w", status.ErrorProto(response.GetStatus()))
	}
	return nil
}
