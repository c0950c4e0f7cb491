package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/proto/names"
)

// putAction stores an action and its command.
func (f *netFarm) putAction(t *testing.T, name string) digest.Digest {
	t.Helper()
	command := f.putMessage(t, &repb.Command{Arguments: []string{name}})
	return f.putMessage(t, &repb.Action{CommandDigest: command.Proto()})
}

func (f *netFarm) update(t *testing.T, instance string, action digest.Digest, r *repb.ActionResult) (*repb.ActionResult, error) {
	t.Helper()
	return f.actions.UpdateActionResult(t.Context(), &repb.UpdateActionResultRequest{
		InstanceName: instance, ActionDigest: action.Proto(), ActionResult: r,
	})
}

func TestServerActionResult(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true}})
	action := f.putAction(t, "a")
	out := f.put(t, digest.SHA256, []byte("out"))
	_, err := f.update(t, "i", action, &repb.ActionResult{
		OutputFiles: []*repb.OutputFile{
			{Path: "a/out", Digest: out.Proto()},
			{Path: "in line", Contents: []byte("inline")},
			{Path: "empty", Digest: digest.SHA256.Empty().Proto()},
		},
		OutputDirectories: []*repb.OutputDirectory{{TreeDigest: f.putMessage(t, &repb.Tree{}).Proto()}},
		StdoutRaw:         []byte("hello"),
	})
	if err != nil {
		t.Fatal(err)
	}
	get := &repb.GetActionResultRequest{InstanceName: "i", ActionDigest: action.Proto()}
	r, err := f.actions.GetActionResult(t.Context(), get)
	if err != nil || len(r.GetStdoutRaw()) > 0 ||
		r.GetStdoutDigest().GetHash() != digest.Of(digest.SHA256, []byte("hello")).Hash() ||
		len(r.GetOutputFiles()[1].GetContents()) > 0 {
		t.Errorf("%v, %v", r, err)
	}
	get.InlineStdout, get.InlineStderr, get.InlineOutputFiles = true, true, []string{"in line", "nowhere"}
	r, err = f.actions.GetActionResult(t.Context(), get)
	if err != nil || string(r.GetStdoutRaw()) != "hello" || len(r.GetOutputFiles()[0].GetContents()) > 0 ||
		string(r.GetOutputFiles()[1].GetContents()) != "inline" {
		t.Errorf("inline: %v, %v", r, err)
	}
	get.InstanceName = ""
	_, err = f.actions.GetActionResult(t.Context(), get)
	netCode(t, "other instance", err, codes.NotFound)
	get.InstanceName, get.ActionDigest = "i", out.Proto()
	_, err = f.actions.GetActionResult(t.Context(), get)
	netCode(t, "other action", err, codes.NotFound)
	get.ActionDigest = nil
	_, err = f.actions.GetActionResult(t.Context(), get)
	netCode(t, "no digest", err, codes.InvalidArgument)
}

func TestServerInlinesOnlyWhatIsSmall(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true}})
	action := f.putAction(t, "a")
	out := f.put(t, digest.SHA256, netBytes(1, inlineBytes))
	small := f.put(t, digest.SHA256, []byte("small"))
	if _, err := f.update(t, "", action, &repb.ActionResult{
		StdoutDigest: small.Proto(), StderrDigest: out.Proto(),
	}); err != nil {
		t.Fatal(err)
	}
	r, err := f.actions.GetActionResult(t.Context(), &repb.GetActionResultRequest{
		ActionDigest: action.Proto(), InlineStdout: true, InlineStderr: true,
	})
	if err != nil || string(r.GetStdoutRaw()) != "small" || len(r.GetStderrRaw()) != 0 {
		t.Errorf("%d bytes of stdout, %d of stderr, %v", len(r.GetStdoutRaw()), len(r.GetStderrRaw()), err)
	}
}

// A result is a hit only while each blob that it refers to exists.
func TestServerResultNeedsAllBlobs(t *testing.T) {
	file := func(name string) *repb.Directory {
		return &repb.Directory{Files: []*repb.FileNode{{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(name)).Proto(),
		}}}
	}
	inTree := &repb.Tree{Root: file("tree root"), Children: []*repb.Directory{file("tree child")}}
	treeDigest, treeBytes, err := digest.OfMessage(digest.SHA256, inTree)
	if err != nil {
		t.Fatal(err)
	}
	child, childBytes, err := digest.OfMessage(digest.SHA256, file("dir child"))
	if err != nil {
		t.Fatal(err)
	}
	root, rootBytes, err := digest.OfMessage(digest.SHA256, &repb.Directory{
		Files:       file("dir root").GetFiles(),
		Directories: []*repb.DirectoryNode{{Name: "sub", Digest: child.Proto()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs := [][]byte{
		[]byte("stdout"), []byte("stderr"), []byte("file"), treeBytes, []byte("tree root"), []byte("tree child"),
		rootBytes, childBytes, []byte("dir root"), []byte("dir child"),
	}
	of := func(s string) *repb.Digest { return digest.Of(digest.SHA256, []byte(s)).Proto() }
	result := &repb.ActionResult{
		StdoutDigest: of("stdout"),
		StderrDigest: of("stderr"),
		OutputFiles:  []*repb.OutputFile{{Path: "f", Digest: of("file")}},
		OutputDirectories: []*repb.OutputDirectory{
			{Path: "t", TreeDigest: treeDigest.Proto()}, {Path: "d", RootDirectoryDigest: root.Proto()},
		},
	}
	action := digest.Of(digest.SHA256, []byte("action"))
	for left := -1; left < len(blobs); left++ {
		store, err := disk.Open(filepath.Join(t.TempDir(), "blobs"), disk.Options{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		actions, err := disk.OpenActions(filepath.Join(t.TempDir(), "actions"), disk.ActionsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := actions.Put(t.Context(), "", action, result); err != nil {
			t.Fatal(err)
		}
		for i, b := range blobs {
			if i == left {
				continue
			}
			if err := store.PutBytes(t.Context(), digest.Of(digest.SHA256, b), b); err != nil {
				t.Fatal(err)
			}
		}
		got, err := New(store, actions, Options{}).Lookup(t.Context(), "", action)
		if left < 0 {
			if err != nil || !proto.Equal(got, result) {
				t.Errorf("all there: %v, %v", got, err)
			}
		} else {
			var missing *cas.MissingError
			if !errors.Is(err, cas.ErrNotFound) || !errors.As(err, &missing) || len(missing.Digests) != 1 ||
				missing.Digests[0] != digest.Of(digest.SHA256, blobs[left]) {
				t.Errorf("without %q: %v, %v", blobs[left], got, err)
			}
		}
		if err := errors.Join(actions.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestServerUpdateIsChecked(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true}})
	action := f.putAction(t, "a")
	there := f.put(t, digest.SHA256, []byte("there")).Proto()
	gone := digest.Of(digest.SHA256, []byte("gone"))
	lonely := f.putMessage(t, &repb.Action{CommandDigest: gone.Proto()})
	file := func(path string, d *repb.Digest) *repb.ActionResult {
		return &repb.ActionResult{OutputFiles: []*repb.OutputFile{{Path: path, Digest: d}}}
	}
	link := func(path, target string) *repb.ActionResult {
		return &repb.ActionResult{OutputSymlinks: []*repb.OutputSymlink{{Path: path, Target: target}}}
	}
	dir := func(d *repb.OutputDirectory) *repb.ActionResult {
		return &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{d}}
	}
	for what, c := range map[string]struct {
		action digest.Digest
		r      *repb.ActionResult
		want   codes.Code
	}{
		"nothing":           {action, nil, codes.InvalidArgument},
		"empty":             {action, &repb.ActionResult{}, codes.OK},
		"failure":           {action, &repb.ActionResult{ExitCode: 1}, codes.InvalidArgument},
		"ended by a signal": {action, &repb.ActionResult{ExitCode: -1}, codes.InvalidArgument},
		"file":              {action, file("a/b", there), codes.OK},
		"dots in a name":    {action, file("a/..b/c..", there), codes.OK},
		"link upwards":      {action, link("a", "../../b"), codes.OK},
		"whole directory":   {action, dir(&repb.OutputDirectory{TreeDigest: digest.SHA256.Empty().Proto()}), codes.OK},
		"no action":         {gone, file("a", there), codes.FailedPrecondition},
		"no command":        {lonely, file("a", there), codes.FailedPrecondition},
		"not an action":     {f.put(t, digest.SHA256, []byte("\xff")), file("a", there), codes.InvalidArgument},
		"missing output":    {action, file("a", gone.Proto()), codes.FailedPrecondition},
		"no path":           {action, file("", there), codes.InvalidArgument},
		"absolute":          {action, file("/a", there), codes.InvalidArgument},
		"upwards":           {action, file("a/../../b", there), codes.InvalidArgument},
		"NUL":               {action, file("a\x00b", there), codes.InvalidArgument},
		"no digest":         {action, file("a", nil), codes.InvalidArgument},
		"bad digest":        {action, file("a", &repb.Digest{Hash: "x"}), codes.InvalidArgument},
		"bad stdout":        {action, &repb.ActionResult{StdoutDigest: &repb.Digest{}}, codes.InvalidArgument},
		"other stdout":      {action, &repb.ActionResult{StdoutDigest: there, StdoutRaw: []byte("x")}, codes.InvalidArgument},
		"link to nothing":   {action, link("a", ""), codes.InvalidArgument},
		"link upwards name": {action, link("../a", "b"), codes.InvalidArgument},
		"no tree":           {action, dir(&repb.OutputDirectory{Path: "d"}), codes.InvalidArgument},
		"tree upwards":      {action, dir(&repb.OutputDirectory{Path: "..", TreeDigest: there}), codes.InvalidArgument},
		"twice": {action, &repb.ActionResult{
			OutputFiles: []*repb.OutputFile{{Path: "a", Digest: there}, {Path: "a", Digest: there}},
		}, codes.InvalidArgument},
	} {
		_, err := f.update(t, "", c.action, c.r)
		netCode(t, what, err, c.want)
	}
	_, err := f.update(t, "a/operations", action, file("a", there))
	netCode(t, "reserved instance", err, codes.InvalidArgument)
}

// A stored failure, from a time when failures were accepted, is not a hit.
func TestServerFailuresAreNoHits(t *testing.T) {
	f := netStart(t, netConfig{})
	action := f.putAction(t, "a")
	get := &repb.GetActionResultRequest{ActionDigest: action.Proto()}
	for code, want := range map[int32]codes.Code{0: codes.OK, 1: codes.NotFound, -1: codes.NotFound} {
		if err := f.server.actions.Put(t.Context(), "", action, &repb.ActionResult{ExitCode: code}); err != nil {
			t.Fatal(err)
		}
		_, err := f.actions.GetActionResult(t.Context(), get)
		netCode(t, fmt.Sprint("exit code ", code), err, want)
	}
}

// Without AllowActionUpdates a result is written only with the grant for its action and instance
// name.
func TestServerGrants(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "grants")
	open := func() *Grants {
		g, err := OpenGrants(file)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	grants := open()
	f := netStart(t, netConfig{server: Options{Grants: grants}})
	if f.server.CacheCapabilities().GetActionCacheUpdateCapabilities().GetUpdateEnabled() {
		t.Error("clients are told that they may write results")
	}
	action, other := f.putAction(t, "a"), f.putAction(t, "b")
	for what, c := range map[string]struct {
		grants []string
		want   codes.Code
	}{
		"none":                    {nil, codes.PermissionDenied},
		"it":                      {[]string{grants.Of("main", action)}, codes.OK},
		"after a restart":         {[]string{open().Of("main", action)}, codes.OK},
		"that of another action":  {[]string{grants.Of("main", other)}, codes.PermissionDenied},
		"that of another name":    {[]string{grants.Of("", action)}, codes.PermissionDenied},
		"that of another storage": {[]string{(&Grants{}).Of("main", action)}, codes.PermissionDenied},
		"several":                 {[]string{grants.Of("main", other), grants.Of("main", action)}, codes.PermissionDenied},
		"something":               {[]string{"something"}, codes.PermissionDenied},
	} {
		ctx := t.Context()
		for _, g := range c.grants {
			ctx = client.WithGrant(ctx, g)
		}
		_, err := f.actions.UpdateActionResult(ctx, &repb.UpdateActionResultRequest{
			InstanceName: "main", ActionDigest: action.Proto(), ActionResult: &repb.ActionResult{},
		})
		netCode(t, what, err, c.want)
		shown := metadata.NewIncomingContext(t.Context(), metadata.MD{names.GrantHeader: c.grants})
		netCode(t, what+", with a report", f.server.PutGranted(shown, "main", action, &repb.ActionResult{}), c.want)
	}
	if err := os.WriteFile(file, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if open().Of("", action) == (&Grants{make([]byte, 32)}).Of("", action) {
		t.Error("zeros are a key")
	}
	f = netStart(t, netConfig{})
	_, err := f.update(t, "", f.putAction(t, "a"), &repb.ActionResult{})
	netCode(t, "without grants at all", err, codes.PermissionDenied)
}
