package farm

import (
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// openSizes returns what chooses size classes by the hints, nil if nothing does.
func (s *Scheduler) openSizes(hints records.Hints, o sizeclass.Options) (*sizeclass.Analyzer, error) {
	if !s.LearnSizes {
		return nil, nil
	}
	o.Logger = s.Logger
	return sizeclass.NewAnalyzer(hints, o)
}
