package status

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Plain quotes a text if it has anything that does not print as one character of a line.
func Plain(text string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// Percent returns a part of one in percent, or nothing if it is unknown.
func Percent(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n*100, 'f', 1, 64) + " %"
}

// PercentOf returns a part of the whole in percent, or nothing if one of them is unknown or the
// whole is 0.
func PercentOf(part, whole *float64) string {
	if part == nil || whole == nil || *whole == 0 {
		return ""
	}
	share := *part / *whole
	return Percent(&share)
}

// Plural returns a number of things: "1 member", "2 members".
func Plural(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.Itoa(n) + " " + noun
}

// Short returns a duration in its two largest units.
func Short(d time.Duration) string {
	d = max(d.Round(time.Second), -math.MaxInt64) // the smallest duration cannot be negated
	if d < 0 {
		return "-" + Short(-d)
	}
	days, hours, minutes, seconds := d/(24*time.Hour), d/time.Hour%24, d/time.Minute%60, d/time.Second%60
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, seconds)
	default:
		return fmt.Sprintf("%ds", seconds)
	}
}

// Stamp returns a time for a view, nil if it is unknown.
func Stamp(t time.Time) *time.Time {
	if t.IsZero() || t.Year() < 1971 || t.Year() > 9999 {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}
