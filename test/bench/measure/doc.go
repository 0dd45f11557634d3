// Package measure reads what processes on this machine use: CPU and memory from /proc, the live
// heap from pprof's text, and metrics in Prometheus' text format with quantiles of their
// histograms. A counting proxy gives bytes on the wire, and the API server's audit log watches and
// writes of Leases.
//
// Everything that reads text is a pure function of the text. It needs Linux because of /proc.
//
// Limits of precision: /proc's times are multiples of 10 ms, and a quantile is as fine as its
// histogram's buckets.
package measure
