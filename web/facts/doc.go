// Package facts says what messages about actions tell: field by field, as the stages that an action went through, and how it
// ended. Pages and the prompt show it alike. The package refuses to ask anybody for more. It has no goroutines.
package facts
