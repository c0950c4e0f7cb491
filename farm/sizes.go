package farm

import (
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// openSizes returns what chooses size classes by the records, nil if nothing does.
func (s *Scheduler) openSizes(records kv.Store, o sizeclass.Options) (*sizeclass.Analyzer, error) {
	if !s.LearnSizes {
		return nil, nil
	}
	o.Logger = s.Logger
	return sizeclass.NewAnalyzer(records, o)
}
