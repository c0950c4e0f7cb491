// Package view has what people and metrics are shown of a State: values, as of its last event.
//
// Who fills them in is core.View. What they say of themselves is here.
package view
