package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// A known is a scheduler with one of each.
type known struct{ admin.SchedulerClient }

func (known) ListOperations(context.Context, *admin.ListOperationsRequest, ...grpc.CallOption) (*admin.ListOperationsResponse, error) {
	return &admin.ListOperationsResponse{Operations: []*admin.Operation{
		{
			Name: "operations/1", Target: "//a:b", Mnemonic: "GoCompile", InstanceName: "main", Worker: "data=/d,host=a",
		},
		{Name: "operations/2", Target: "//b,c\x1b"},
	}}, nil
}

func (known) ListRecords(context.Context, *admin.ListRecordsRequest, ...grpc.CallOption) (*admin.ListRecordsResponse, error) {
	return &admin.ListRecordsResponse{Records: []*historypb.Record{{
		Operation: "operations/3", Action: "ab/7", Target: "//c:d", Worker: "data=/d,host=a", Ended: timestamppb.New(time.Now().Add(-time.Minute)),
	}}}, nil
}

func (known) ListWorkers(context.Context, *admin.ListWorkersRequest, ...grpc.CallOption) (*admin.ListWorkersResponse, error) {
	return &admin.ListWorkersResponse{
		Workers: []*admin.Worker{{Identity: map[string]string{"host": "build-1", "data": "/x"}}, {Identity: map[string]string{"host": "build-2"}}},
		Drains:  []*admin.ActiveDrain{{Pattern: &admin.Pattern{Attributes: map[string]string{"host": "old-*"}}}},
	}, nil
}

func (known) ListQuotas(context.Context, *admin.ListQuotasRequest, ...grpc.CallOption) (*admin.ListQuotasResponse, error) {
	return &admin.ListQuotasResponse{Cohorts: []*admin.Cohort{{Name: "linux", Unit: "slots", Quotas: []*admin.Quota{{InstanceName: "main"}}}}}, nil
}

// TestCompletion types arguments of each command that has some.
func TestCompletion(t *testing.T) {
	c := &adminCall{SchedulerClient: known{}}
	for line, want := range map[string]string{
		"operation ":                            "1 2 3",
		"operation o":                           "operations/1 operations/2 operations/3",
		"operation 1 ":                          "",
		"operation cancel ":                     "1 2",
		"operation cancel 1 ":                   "1 2",
		"explain ":                              "ab/7",
		"explain ab/7 ":                         "",
		"stats a":                               "ab/7",
		"profile x":                             "",
		"queue kill o":                          "operations/1 operations/2 operation=",
		"queue kill target=":                    "target=//a:b target=//b,c?",
		"queue kill target=//a:b,":              "target=//a:b,action= target=//a:b,client= target=//a:b,correlated=",
		"queue kill target=//a:b,target=":       "target=//a:b,target=//a:b",
		"queue operations st":                   "stage=",
		"queue operations mnemonic=x stage=q":   "stage=queued",
		"workers drain ":                        "data= host=",
		"workers drain host=":                   "host=build-1 host=build-2 host=old-*",
		"workers undrain host=o":                "host=old-*",
		"workers list host=build-1 data=":       "data=/x",
		"workers host":                          "",
		"history targ":                          "target=",
		"history target=":                       "target=//c:d",
		"history worker=":                       "worker=data=/d?host=a",
		"queue kill worker=d":                   "worker=data=/d?host=a",
		"quota put ":                            "main",
		"quota put main ":                       "linux",
		"quota put main linux ":                 "",
		"quota list l":                          "linux",
		"queue operations operation=operations": "operation=operations/1 operation=operations/2",
	} {
		words := strings.Split(line, " ")
		cmd, args, err := command().Find(words[:len(words)-1])
		if err != nil {
			t.Fatal(err)
		}
		list, goesOn := c.complete(t.Context(), cmd, args, words[len(words)-1])
		var got []string
		for _, one := range list[:min(len(list), 3)] {
			value, _, _ := strings.Cut(one, "\t")
			got = append(got, value)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
		if isName := len(got) > 0 && strings.HasSuffix(got[len(got)-1], "="); isName != goesOn {
			t.Errorf("%q: what follows is on the same word: %t", line, goesOn)
		}
	}
	if list, _ := c.complete(t.Context(), find(t, "operation"), nil, "1"); !slices.Equal(list, []string{"1\t//a:b GoCompile executing"}) {
		t.Errorf("an operation is described as %q", list)
	}
}

func find(t *testing.T, names ...string) *cobra.Command {
	t.Helper()
	cmd, _, err := command().Find(names)
	if err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A silent is a scheduler that does not answer.
type silent struct{ admin.SchedulerClient }

func (silent) ListOperations(ctx context.Context, _ *admin.ListOperationsRequest, _ ...grpc.CallOption) (*admin.ListOperationsResponse, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		return nil, errors.New("the shell waits for ever")
	}
	return nil, context.DeadlineExceeded
}

// TestCompletionWithoutScheduler offers what is known anyway.
func TestCompletionWithoutScheduler(t *testing.T) {
	c := &adminCall{SchedulerClient: silent{}}
	if list, goesOn := c.complete(t.Context(), find(t, "queue", "kill"), nil, "stage"); !goesOn || len(list) != 1 {
		t.Errorf("it offers %q", list)
	}
}

// TestWordsOfFlags: shells complete the values of flags.
func TestWordsOfFlags(t *testing.T) {
	words, known := find(t, "exec").GetFlagCompletionFunc("live")
	if !known {
		t.Fatal("--live is not known")
	}
	if list, _ := words(nil, nil, ""); !slices.Equal(list, []string{"auto", "on", "off"}) {
		t.Errorf("--live may be %q", list)
	}
}
