module tenure.local/e2e-app

go 1.26
