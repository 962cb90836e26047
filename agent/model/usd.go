package model

import "fmt"

// USD formats an amount in micro-USD: with four decimals below one dollar, otherwise with two.
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
