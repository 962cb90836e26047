//go:build !linux && !darwin && !windows

package space

import "errors"

// Of returns an error, because it is not implemented for this system.
func Of(string) (Left, error) {
	return Left{}, errors.New("this system does not tell how much is left")
}
