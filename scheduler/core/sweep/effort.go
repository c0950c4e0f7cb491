package sweep

// An Effort is the remaining work that the current event may do, measured in looks at an item that
// stays where it is.
type Effort struct{ Left int }

// Spend takes an amount of work, or the rest; false: nothing was left.
func (e *Effort) Spend(n int) bool {
	if e.Left <= 0 {
		return false
	}
	e.Left -= n
	return true
}
