package core

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

func TestLevelsAreChecked(t *testing.T) {
	for _, test := range []struct {
		queue levels.QueueConfig
		want  string
	}{
		{levels.QueueConfig{Levels: []levels.Level{{Key: "users"}}}, `level 1: key "users" is none of`},
		{levels.QueueConfig{Prefix: "acme/"}, `invalid instance name "acme/"`},
		{
			levels.QueueConfig{Levels: []levels.Level{{Key: levels.KeyUser}, {Key: levels.KeyClaim}}},
			"level 2: key claim needs a name",
		},
		{levels.QueueConfig{Levels: []levels.Level{{Key: levels.KeyUser, Name: "x"}}}, "key user takes no name"},
		{levels.QueueConfig{Levels: []levels.Level{{Key: levels.KeyUser, Stickiness: -1}}}, "stickiness is negative"},
		{levels.QueueConfig{Levels: []levels.Level{{
			Key:     levels.KeyUser,
			Weights: map[string]float64{"a": 0},
		}}}, `weight of "a" is 0`},
		{levels.QueueConfig{Levels: make([]levels.Level, 17)}, "17 levels, at most 16"},
	} {
		_, err := NewState(tuning.Config{Queues: []levels.QueueConfig{{}, test.queue}})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Queues[1]") {
			t.Errorf("%+v: %v, want %s", test.queue, err, test.want)
		}
	}
}

func TestLevelsOfAPool(t *testing.T) {
	c := tuning.Config{Queues: []levels.QueueConfig{
		{Prefix: "main", Platform: map[string]string{"OS": "linux"}, Levels: []levels.Level{{Key: levels.KeyUser}}},
		{Prefix: "main", Levels: []levels.Level{}},
		{Platform: map[string]string{"OS": "linux", "gpu": "1"}, Levels: []levels.Level{{Key: levels.KeyTarget}}},
	}}
	for _, test := range []struct{ prefix, platform, want string }{
		{"main", "OS=linux,gpu=1", "user"},
		{"main/x", "OS=linux", "user"},
		{"main", "OS=mac", ""},
		{"mainly", "OS=linux", "instance_name correlated_invocations_id tool_invocation_id"},
		{"", "OS=linux,gpu=1,x=y", "target_id"},
	} {
		var got []string
		for _, l := range c.LevelsOf(c.TermsOf(test.prefix, request.NewPlatform(parsePlatform(test.platform)))) {
			got = append(got, string(l.Key))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s %s has levels %q, want %q", test.prefix, test.platform, got, test.want)
		}
	}
}
