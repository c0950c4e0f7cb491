package sweep

// An Effort is what the present event may still do, in looks at an item that stays where it is.
type Effort struct{ Left int }

// Spend takes so much, or what there is; false: there is none.
func (e *Effort) Spend(n int) bool {
	if e.Left <= 0 {
		return false
	}
	e.Left -= n
	return true
}
