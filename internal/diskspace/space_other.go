//go:build !linux && !darwin && !windows

package diskspace

import "errors"

// Free returns an error, because it is not implemented for this system.
func Free(string) (Space, error) {
	return Space{}, errors.New("this system does not tell how much is left")
}
