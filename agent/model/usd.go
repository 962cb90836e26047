package model

import "fmt"

// USD returns an amount in millionths of a dollar as a price: with four decimals below a dollar, otherwise with two.
func USD(micro int64) string {
	switch v := float64(micro) / 1e6; {
	case micro == 0:
		return "$0"
	case v < 1:
		return fmt.Sprintf("$%.4f", v)
	default:
		return fmt.Sprintf("$%.2f", v)
	}
}
