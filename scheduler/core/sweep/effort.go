package sweep

// An Effort is the remaining work of the current event, in looks at an item that stays where it is.
type Effort struct{ Left int }

// Spend takes so much, or what is left; false: nothing is left.
func (e *Effort) Spend(n int) bool {
	if e.Left <= 0 {
		return false
	}
	e.Left -= n
	return true
}
