# make app    open the explorer on the shipped collection
# make test   lint, then run every test (the browser tests skip without Chromium)
# Both install what they need on the first call; a second call starts at once.

VENV ?= .venv
PYTHON ?= python3
ADDRESS ?= localhost
PORT ?= 8501
PYTEST_ARGS ?=
WORKERS ?= 2

BIN := $(VENV)/bin
export HF_HUB_OFFLINE := 1

.PHONY: app test install

app: install
	$(BIN)/streamlit run app.py --server.address $(ADDRESS) --server.port $(PORT) \
		--server.showEmailPrompt false --browser.gatherUsageStats false

# Every check runs, so that one call shows all that is wrong. One thread per process:
# more would wait for each other.
test: install
	@failed=0; \
	$(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile \
		--no-loadscope-reorder $(PYTEST_ARGS) || failed=1; \
	exit $$failed

# The copy of requirements.txt inside the environment says what is installed there. It
# is made last, so that an interrupted install starts again.
install:
	@cmp -s requirements.txt $(VENV)/installed.txt || { \
		echo "Installing into $(VENV), once: about 4 minutes and 5.5 GB." && \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt && \
		cp requirements.txt $(VENV)/installed.txt; }
