package farm

import (
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// openSizes returns what chooses size classes by the records, nil if nothing does.
func (s *Scheduler) openSizes(records kv.Store) (*sizeclass.Analyzer, error) {
	if !s.LearnSizes {
		return nil, nil
	}
	return sizeclass.NewAnalyzer(records, sizeclass.Options{Logger: s.Logger})
}
