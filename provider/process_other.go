//go:build !linux

package provider

import (
	"context"
	"errors"
)

// errProcessUnsupported is what systems without a /proc answer.
var errProcessUnsupported = errors.New("processes can be told apart on Linux only")

// OpenProcess answers an error: processes can be told apart on Linux only.
func OpenProcess() (*Process, error) { return nil, errProcessUnsupported }

func physical(string) bool { return false }

func (p *Process) end(context.Context, string, bool) (Answer, error) {
	return Answer{}, &Error{Kind: KindElsewhere, Cause: errProcessUnsupported}
}
