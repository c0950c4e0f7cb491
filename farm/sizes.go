package farm

import (
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// openSizes returns the component that chooses size classes by the hints, nil if there is none.
func (s *Scheduler) openSizes(hints records.Hints, o sizeclass.Options) (*sizeclass.Analyzer, error) {
	if !s.LearnSizes {
		return nil, nil
	}
	o.Logger = s.Logger
	return sizeclass.NewAnalyzer(hints, o)
}
