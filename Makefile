# make app    open the explorer on the shipped collection
# make test   lint, then run every test (the browser tests skip without Chromium)
# make space  prepare the folder of a Hugging Face Space: make space SPACE=user/name
# The first two install what they need on the first call; a second call starts at once.

VENV ?= .venv
PYTHON ?= python3
ADDRESS ?= localhost
PORT ?= 8501
PYTEST_ARGS ?=
WORKERS ?= 2

BIN := $(VENV)/bin
export HF_HUB_OFFLINE := 1

SPACE ?=
SPACE_FOLDER ?= data/work/space

.PHONY: app test space install

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
# is made last, so that an interrupted install starts again. uv does it faster than pip.
install:
	@cmp -s requirements.txt $(VENV)/installed.txt || { \
		if command -v uv > /dev/null; then \
			echo "Installing into $(VENV) with uv, once: 5.5 GB." && \
			uv venv --quiet --allow-existing --python 3.11 $(VENV) && \
			uv pip install --python $(BIN)/python -r requirements.txt; \
		else \
			echo "Installing into $(VENV), once: about 4 minutes and 5.5 GB." && \
			$(PYTHON) -m venv $(VENV) && \
			$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt; \
		fi && cp requirements.txt $(VENV)/installed.txt; }

# What git tracks, without the tests; files of data go to the Space by Git LFS.
space:
	@test -n "$(SPACE)" || { echo "Name the Space: make space SPACE=user/name"; exit 1; }
	@rm -rf $(SPACE_FOLDER) && mkdir -p $(SPACE_FOLDER)
	@git ls-files -z app.py visit.py core pages precompute data .streamlit \
		requirements.txt LICENSE | tar --null -T - -cf - | tar -xf - -C $(SPACE_FOLDER)
	@cat .docker/Dockerfile .space/Dockerfile.end > $(SPACE_FOLDER)/Dockerfile
	@cp .space/README.md $(SPACE_FOLDER)/README.md
	@cp .space/gitattributes $(SPACE_FOLDER)/.gitattributes
	@echo "$(SPACE_FOLDER) is ready. Make a Space of the kind Docker, then:"
	@echo "  cd $(SPACE_FOLDER) && git init -b main && git lfs install && git add -A"
	@echo "  git commit -m Afterimage"
	@echo "  git push --force https://huggingface.co/spaces/$(SPACE) main"
