package authority

// Optional is a field of a change that can be null: left alone where Set is false, otherwise made
// null or Value.
type Optional[T any] struct {
	Set   bool
	Value *T
}

// To is the change of a field to a value.
func To[T any](value T) Optional[T] { return Optional[T]{Set: true, Value: &value} }

// ToNull is the change of a field to null.
func ToNull[T any]() Optional[T] { return Optional[T]{Set: true} }

// over is the field after the change, given what it was before.
func (o Optional[T]) over(before *T) *T {
	if o.Set {
		return o.Value
	}
	return before
}
