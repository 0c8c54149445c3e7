package authority

import "github.com/google/uuid"

// newID returns an id for a new row: version 7, so that rows made one after the other lie side by
// side in their indexes.
func newID() uuid.UUID {
	return uuid.Must(uuid.NewV7()) // fails only when the system has no randomness, and then nothing is safe
}
