// Command flotilla runs kube-controller-manager as a fleet.
package main

import (
	"os"
	_ "time/tzdata" // time zones of CronJobs, where the image has none

	"github.com/flotilla-kube/flotilla/internal/app"
)

func main() { os.Exit(app.Main()) }
