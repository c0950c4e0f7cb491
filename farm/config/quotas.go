package config

import (
	"errors"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// quotaFields are the fields of a scheduler's configuration about quotas. check looks
// at all of them, when they have been read.
func quotaFields(c *core.Config) (fields map[string]func(node) error, check func() error) {
	labels, cohorts := map[string]node{}, map[string]node{}
	fields = map[string]func(node) error{
		"labels": func(n node) error {
			return n.each(func(name string, n node) error {
				l := quota.Label{Name: name}
				labels[name] = n
				err := n.texts(&l.Properties)
				c.Quotas.Labels = append(c.Quotas.Labels, l)
				return err
			})
		},
		"cohorts": func(n node) error {
			return n.each(func(name string, n node) error {
				co := quota.Cohort{Name: name}
				cohorts[name] = n
				_, err := n.fields(map[string]func(node) error{
					"labels": func(n node) error { return n.words(&co.Labels) },
					"unit":   func(n node) error { return n.text((*string)(&co.Unit)) },
				})
				c.Quotas.Cohorts = append(c.Quotas.Cohorts, co)
				return err
			})
		},
		"preemption": func(n node) error {
			_, err := n.fields(map[string]func(node) error{
				"delay":   func(n node) error { return n.duration(&c.PreemptionDelay) },
				"grace":   func(n node) error { return n.duration(&c.PreemptionGrace) },
				"at_most": func(n node) error { return n.count(&c.MaxPreemptions) },
			})
			return err
		},
	}
	return fields, func() error {
		var fault *quota.Fault
		if !errors.As(c.Quotas.Validate(), &fault) {
			return nil
		}
		n := labels[fault.Label]
		if fault.Cohort != "" {
			n = cohorts[fault.Cohort]
		}
		return n.errorf("%s", fault.Reason)
	}
}
